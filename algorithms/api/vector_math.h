#pragma once

#include "core/vector.h"

namespace macaw::algorithms {

// Arithmetic on flat vectors, element by element in the vectors' own type, f32 or f64. All operands
// of a call share one layout and lie in host memory (asserted: an algorithm's own vectors do by
// construction). An operand may be the result. Scalars are rounded to the element type first. Bits
// do not depend on the instruction set.

void Copy(ConstVectorView from, VectorView to);
void Zero(VectorView v);
void Scale(double factor, VectorView v);                              // v ← factor·v
void Add(ConstVectorView x, VectorView y);                            // y ← y + x
void Subtract(ConstVectorView a, ConstVectorView b, VectorView out);  // out ← a − b
void Axpy(double factor, ConstVectorView x,
          VectorView y);  // y ← y + factor·x; Add when factor is 1

// Summed in double, in the vector's order, over the tensors and not the gaps.
double Dot(ConstVectorView a, ConstVectorView b);

// Whether the two mean the same tensors: one layout, or equal ones made apart.
bool SameLayout(const ParameterLayout* a, const ParameterLayout* b);

}  // namespace macaw::algorithms
