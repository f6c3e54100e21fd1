// apiary/compiled/gang_scheduler.cpp - the bodies of the gang scheduler, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/gang_scheduler/detail/gang_cluster_inl.h>
#include <apiary/gang_scheduler/detail/gang_scheduler_inl.h>
