#pragma once

#include "core/vector.h"

namespace macaw::algorithms {

// Arithmetic on flat vectors, element by element in the vectors' own type, f32 or f64. All operands
// of a call share one layout and lie in host memory (asserted: an algorithm's own vectors do by
// construction). An operand may be the result. Scalars are rounded to the element type first. Bits
// do not depend on the instruction set.

void Copy(ConstVectorView from, VectorView to);
void Zero(VectorView v);
void Fill(double value, VectorView v);      // the tensors; the gaps stay zero
void Scale(double factor, VectorView v);    // v ← factor·v
void Add(ConstVectorView x, VectorView y);  // y ← y + x
void Subtract(ConstVectorView a, ConstVectorView b, VectorView out);  // out ← a − b
void Axpy(double factor, ConstVectorView x,
          VectorView y);  // y ← y + factor·x; Add when factor is 1

// Batch-norm statistics and the like stand in the same vector behind the parameters, and most
// formulas are not meant for them.
void ScaleParameters(double factor, VectorView v);      // the parameters ← factor·parameters
void CopyBuffers(ConstVectorView from, VectorView to);  // the buffers only
void AddBuffers(ConstVectorView from, VectorView to);   // the buffers only
void ZeroBuffers(VectorView v);                         // the buffers only

// Summed in double, in the vector's order, over the tensors and not the gaps.
double Dot(ConstVectorView a, ConstVectorView b);
// ‖v‖² of the parameters alone, summed likewise.
double SquaredNorm(ConstVectorView v);

// out[i] ← f(out[i], in[i]...) for every element, buffers included, in the vectors' own type T: `f`
// takes and returns T and rounds its scalars to T. f(0, 0...) must be 0 or the gaps would fill; a
// rule that cannot promise it walks the layout's entries itself.
template <typename F, typename... In>
void Map(VectorView out, F&& f, In... in) {
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    const auto map = [&](std::span<T> into, auto... from) {
      for (size_t i = 0; i < into.size(); ++i) into[i] = f(into[i], from[i]...);
    };
    map(out.template As<T>(), ConstVectorView(in).template As<T>()...);
  });
}

// Whether the two mean the same tensors: one layout, or equal ones made apart.
bool SameLayout(const ParameterLayout* a, const ParameterLayout* b);

}  // namespace macaw::algorithms
