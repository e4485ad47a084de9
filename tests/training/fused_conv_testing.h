#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/random.h"
#include "training/fused/block.h"
#include "training/fused/conv.h"
#include "training/fused/isa.h"

namespace macaw::training::fused::fixtures {

// A convolution on a batch.
struct ConvCase {
  ConvPlan plan;
  size_t n = 1;
  std::string Text() const;
};

// What goes in and what comes out, in PyTorch's order: [n][channels][height][width], weights
// [out][in][k][k].
struct ConvNumbers {
  std::vector<double> x, weight, bias, d_out;  // in
  std::vector<double> out, d_in, d_weight, d_bias;
};

// Every special path at least once: no border, border, one channel, ragged channels and runs,
// strides, pools of 2 and 3 that leave rows over, 1×1 kernels, images smaller than a tile.
std::vector<ConvCase> HandPickedConvs();
ConvCase RandomConv(RandomStream& random);

// Whole numbers from -most to most.
ConvNumbers WholeNumbers(const ConvCase& conv, int most);
ConvNumbers NormalNumbers(const ConvCase& conv);

// The definition, in double, loop by loop: fills the second half of `given`. The first of equal
// maxima has the gradient; the ReLU lets none through at 0.
ConvNumbers Reference(const ConvCase& conv, ConvNumbers given);

// `shift` floats before each buffer (a multiple of 16), all buffers full of garbage before.
ConvNumbers RunBlock(Isa isa, const ConvCase& conv, const ConvNumbers& given, size_t shift = 0);

// "" or the first few differences; allowed: |a − b| ≤ tolerance·max(1, largest of the vector).
std::string Differences(const ConvNumbers& a, const ConvNumbers& b, double tolerance = 0);

}  // namespace macaw::training::fused::fixtures
