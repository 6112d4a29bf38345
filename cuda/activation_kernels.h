// Activations of an MLP's inner rows.
#pragma once

#include "cuda/stream.h"

namespace batchmill {

enum class GateKind { kSilu, kGeluTanh, kGeluErf };

// output [rows, inner] bf16 = act(gate) × up of input [rows, gate inner | up inner] bf16, or, if
// not gated, act(input [rows, inner]). inner: a multiple of 8.
void launch_activation(GateKind kind, bool gated, const void* input, void* output, int rows,
                       int inner, StreamHandle stream);

}  // namespace batchmill
