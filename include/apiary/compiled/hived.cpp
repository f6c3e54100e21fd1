// apiary/compiled/hived.cpp - the bodies of HiveD, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/hived/detail/audit_inl.h>
#include <apiary/hived/detail/hived_inl.h>
#include <apiary/hived/detail/layout_inl.h>
#include <apiary/hived/detail/queries_inl.h>
#include <apiary/hived/detail/snapshot_inl.h>
#include <apiary/hived/detail/topology_fit_inl.h>
