// apiary/compiled/gang.cpp - the bodies of the gang searches, for the target apiary::compiled.
// SPDX-License-Identifier: MIT
#ifndef APIARY_COMPILED
#error "APIARY_COMPILED must be defined wherever the library is compiled or linked"
#endif

#include <apiary/gang/detail/infeasibility_proof_inl.h>
#include <apiary/gang/detail/proof_text_inl.h>
