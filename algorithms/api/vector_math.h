#pragma once

#include "core/random.h"
#include "core/vector.h"

namespace macaw::algorithms {

// Element-wise arithmetic on flat vectors, in their own type (f32 or f64). All operands of a call
// must have the same layout and lie in CPU memory; this is asserted. The result may also be an
// operand. Scalars are rounded to the element type first. Bits do not depend on the instruction
// set.

void Copy(ConstVectorView from, VectorView to);
void Zero(VectorView v);
void Fill(double value, VectorView v);      // the tensors; gaps stay zero
void Scale(double factor, VectorView v);    // v ← factor·v
void Clamp(double bound, VectorView v);     // v ← into [−bound, bound]
void Add(ConstVectorView x, VectorView y);  // y ← y + x
void Subtract(ConstVectorView a, ConstVectorView b, VectorView out);  // out ← a − b
void Axpy(double factor, ConstVectorView x,
          VectorView y);  // y ← y + factor·x; Add when factor is 1

// Batch-norm statistics and the like follow the parameters in the same vector. Most formulas are
// not meant for them.
void ScaleParameters(double factor, VectorView v);      // the parameters ← factor·parameters
void CopyBuffers(ConstVectorView from, VectorView to);  // the buffers only
void AddBuffers(ConstVectorView from, VectorView to);   // the buffers only
void ZeroBuffers(VectorView v);                         // the buffers only

// Adds N(0, deviation²), drawn from `random`, to each parameter. Normals have float's precision and
// end at 6.66 deviations; with their tail: double's, and 9.49 (core/normal_tail.h).
void AddNormal(RandomStream random, double deviation, VectorView v);
void AddNormalWithTail(RandomStream random, double deviation, VectorView v);

// Summed in double, in the vector's order, over the tensors (gaps are skipped).
double Dot(ConstVectorView a, ConstVectorView b);
// ‖v‖² of the parameters only, summed in the same way.
double SquaredNorm(ConstVectorView v);

// out[i] ← f(out[i], in[i]...) for every element, buffers included, in the vectors' own type T. `f`
// takes and returns T and rounds its scalars to T. f(0, 0...) must be 0, because it is applied to
// the gaps, too; a rule that cannot promise it loops over the layout's entries itself.
template <typename F, typename... In>
void Map(VectorView out, F&& f, In... in) {
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    const auto map = [&](std::span<T> into, auto... from) {
      for (size_t i = 0; i < into.size(); ++i) into[i] = f(into[i], from[i]...);
    };
    map(out.template As<T>(), ConstVectorView(in).template As<T>()...);
  });
}

// Whether both describe the same tensors, even if they are different objects.
bool SameLayout(const ParameterLayout* a, const ParameterLayout* b);

}  // namespace macaw::algorithms
