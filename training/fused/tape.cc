#include "training/fused/tape.h"

#include <algorithm>

namespace macaw::training::fused {

void Tape::Reserve(size_t n) {
  if (n <= capacity_) return;
  size_t size = 0;
  const auto take = [&size](size_t floats) {
    const size_t place = size;
    size += RoundUp(floats);
    return place;
  };
  take(n * program_.in().stride());
  places_.clear();
  size_t scratch = 0, widest = 0;
  for (const Program::Step& step : program_.steps()) {
    const Block& block = *step.block;
    places_.push_back({take(n * block.out().stride()), take(block.kept(n))});
    scratch = std::max(scratch, block.scratch(n));
    widest = std::max(widest, block.out().stride());
  }
  scratch_ = take(scratch);
  d_even_ = take(n * widest);
  d_odd_ = take(n * widest);
  buffer_ = AlignedBuffer(size * sizeof(float));
  capacity_ = n;
}

const float* Tape::Forward(size_t n, std::span<const float> weights, RandomStream* dropout) {
  const float* in = At(0);
  for (size_t i = 0; i < places_.size(); ++i) {
    const Program::Step& step = program_.steps()[i];
    float* const out = At(places_[i].out);
    step.block->Forward({.n = n,
                         .in = in,
                         .out = out,
                         .weights = weights.data() + step.offset,
                         .kept = At(places_[i].kept),
                         .scratch = At(scratch_),
                         .dropout = dropout});
    in = out;
  }
  return in;
}

void Tape::BackwardBlock(size_t index, size_t n, std::span<float> weights, float* gradient,
                         uint32_t wanted, const PlainStep* step_of, bool d_in) {
  const Program::Step& step = program_.steps()[index];
  const size_t behind = program_.steps().size() - 1 - index;  // number of blocks behind this one
  step.block->Backward(
      {.n = n,
       .in = index == 0 ? At(0) : At(places_[index - 1].out),
       .out = At(places_[index].out),
       .weights = weights.data() + step.offset,
       .kept = At(places_[index].kept),
       .scratch = At(scratch_),
       .d_out = At(behind % 2 == 0 ? d_even_ : d_odd_),
       .d_in = d_in ? At(behind % 2 == 0 ? d_odd_ : d_even_) : nullptr,
       .gradient = gradient == nullptr ? nullptr : gradient + step.offset,
       .wanted = wanted,
       .step = step_of,
       .stepped = step_of == nullptr ? nullptr : weights.data() + step.offset,
       .v = step_of == nullptr || step_of->v == nullptr ? nullptr : step_of->v + step.offset});
}

}  // namespace macaw::training::fused
