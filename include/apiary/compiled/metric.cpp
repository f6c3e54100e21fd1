// apiary/compiled/metric.cpp - the bodies of the metrics, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/metric/detail/fragmentation_inl.h>
#include <apiary/metric/detail/task_mix_inl.h>
