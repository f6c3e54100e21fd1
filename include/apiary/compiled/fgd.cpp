// apiary/compiled/fgd.cpp - FGD's schedulers with its own scores, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/core/config.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/preemptive_sharing.h>
#include <apiary/fgd/price_score.h>

APIARY_NAMESPACE_BEGIN

template class gpu_sharing_scheduler<fragmentation_gradient>;
template class gpu_sharing_scheduler<price_score>;
template class gang_sharing_scheduler<fragmentation_gradient>;
template class preemptive_sharing_scheduler<fragmentation_gradient>;

APIARY_NAMESPACE_END
