// apiary/compiled.cpp - what the target apiary::compiled compiles once for all programs.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/gang/detail/infeasibility_proof_inl.h>
#include <apiary/gang/detail/proof_text_inl.h>
#include <apiary/gang/detail/topology_constraints_inl.h>
#include <apiary/gang_scheduler/detail/gang_cluster_inl.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_inl.h>
#include <apiary/hived/detail/audit_inl.h>
#include <apiary/hived/detail/draw_inl.h>
#include <apiary/hived/detail/hived_inl.h>
#include <apiary/hived/detail/layout_inl.h>
#include <apiary/hived/detail/queries_inl.h>
#include <apiary/hived/detail/snapshot_inl.h>
#include <apiary/hived/detail/topology_fit_inl.h>
