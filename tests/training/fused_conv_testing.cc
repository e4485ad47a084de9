#include "tests/training/fused_conv_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"

namespace macaw::training::fused::fixtures {
namespace {

struct Extents {
  explicit Extents(const ConvPlan& plan)
      : channels(plan.in.channels),
        in_height(plan.in.height),
        in_width(plan.in.width),
        height((in_height + 2 * plan.padding - plan.kernel) / plan.stride + 1),
        width((in_width + 2 * plan.padding - plan.kernel) / plan.stride + 1),
        pooled_height(height / plan.pool),
        pooled_width(width / plan.pool) {}
  size_t channels, in_height, in_width, height, width, pooled_height, pooled_width;
};

std::vector<double> Draw(RandomStream& random, size_t count, int most) {
  std::vector<double> values(count);
  for (double& value : values) {
    value = most == 0 ? static_cast<float>(random.Normal())
                      : static_cast<double>(random.Below(2 * most + 1)) - most;
  }
  return values;
}

ConvNumbers DrawAll(const ConvCase& conv, int most) {
  RandomStream random(StreamKey{.seed = 11, .extra = conv.n});
  const ConvPlan& plan = conv.plan;
  const Extents e(plan);
  ConvNumbers given;
  given.x = Draw(random, conv.n * plan.in.elements(), most);
  given.weight = Draw(random, plan.outputs * plan.in.channels * plan.kernel * plan.kernel, most);
  given.bias = Draw(random, plan.outputs, most);
  given.d_out = Draw(random, conv.n * plan.outputs * e.pooled_height * e.pooled_width, most);
  return given;
}

constexpr size_t kGuard = 64;
constexpr float kGarbage = 1e30f;

// 64-byte aligned memory full of garbage, after `shift` unused floats and followed by a guard that
// must not change.
class Buffer {
 public:
  Buffer(size_t floats, size_t shift)
      : floats_(floats),
        shift_(shift),
        data_(new (std::align_val_t(64)) float[shift + floats + kGuard]) {
    std::fill_n(data_, shift + floats + kGuard, kGarbage);
  }
  ~Buffer() { operator delete[](data_, std::align_val_t(64)); }
  Buffer(const Buffer&) = delete;

  float* data() { return data_ + shift_; }
  bool GuardIsWhole() const {
    return std::all_of(data_ + shift_ + floats_, data_ + shift_ + floats_ + kGuard,
                       [](float value) { return value == kGarbage; });
  }

 private:
  size_t floats_, shift_;
  float* data_;
};

void PutIn(const Shape& shape, size_t n, const std::vector<double>& planar, float* to) {
  std::fill_n(to, n * shape.stride(), 0.0f);
  for (size_t e = 0; e < n; ++e) {
    for (size_t i = 0; i < shape.elements(); ++i) {
      to[e * shape.stride() + shape.At(i)] = static_cast<float>(planar[e * shape.elements() + i]);
    }
  }
}

// The elements in planar order, followed by the sum of the padding, which must be zero.
std::vector<double> TakeOut(const Shape& shape, size_t n, const float* from) {
  std::vector<double> planar;
  double rest = 0;
  for (size_t e = 0; e < n; ++e) {
    std::vector<bool> used(shape.stride());
    for (size_t i = 0; i < shape.elements(); ++i) {
      planar.push_back(from[e * shape.stride() + shape.At(i)]);
      used[shape.At(i)] = true;
    }
    for (size_t i = 0; i < shape.stride(); ++i) {
      if (!used[i]) rest += std::abs(from[e * shape.stride() + i]);
    }
  }
  planar.push_back(rest);
  return planar;
}

std::string Compare(const char* what, const std::vector<double>& a, const std::vector<double>& b,
                    double tolerance) {
  if (a.size() != b.size()) {
    return absl::StrCat(what, " has ", a.size(), " elements, not ", b.size(), "; ");
  }
  double largest = 1;
  for (const double value : b) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= tolerance * largest)) {
      return absl::StrCat(what, "[", i, "] is ", a[i], ", not ", b[i], "; ");
    }
  }
  return "";
}

}  // namespace

std::string ConvCase::Text() const {
  const bool planar = plan.in.order == Shape::Order::kPlanar;
  return absl::StrCat("n ", n, ", ", plan.in.channels, "x", plan.in.height, "x", plan.in.width,
                      planar ? " planar" : absl::StrCat(" pitch ", plan.in.pitch), ", to ",
                      plan.outputs, ", kernel ", plan.kernel, ", stride ", plan.stride, ", pad ",
                      plan.padding, plan.bias ? ", bias" : "", plan.relu ? ", relu" : "", ", pool ",
                      plan.pool);
}

std::vector<ConvCase> HandPickedConvs() {
  const auto planar = [](size_t c, size_t h, size_t w) {
    return Shape{.channels = c, .height = h, .width = w};
  };
  const auto woven = [](size_t c, size_t h, size_t w, size_t pitch) {
    return Shape{c, h, w, Shape::Order::kInterleaved, pitch};
  };
  return {
      {{planar(1, 28, 28), 6, 5, 1, 2, true, true, 2}, 3},  // lenet5
      {{woven(6, 14, 14, 6), 16, 5, 1, 0, true, true, 2}, 7},
      {{planar(1, 28, 28), 32, 3, 1, 0, true, true, 1}, 2},  // simple_cnn
      {{woven(32, 26, 26, 32), 64, 3, 1, 0, true, true, 2}, 2},
      {{planar(1, 28, 28), 32, 5, 1, 2, true, true, 2}, 2},  // cnn
      {{woven(32, 14, 14, 32), 64, 5, 1, 2, true, true, 2}, 2},
      {{planar(3, 9, 11), 20, 3, 2, 1, true, false, 1}, 3},
      {{woven(5, 7, 8, 16), 3, 3, 1, 1, false, true, 3}, 2},
      {{woven(16, 4, 4, 16), 33, 1, 1, 0, true, true, 1}, 5},
      {{woven(17, 6, 5, 17), 17, 1, 2, 0, true, true, 2}, 4},
      {{planar(2, 7, 7), 1, 7, 1, 0, true, false, 1}, 1},
      {{planar(1, 3, 3), 1, 3, 1, 1, true, true, 3}, 1},
      {{woven(24, 10, 10, 24), 40, 4, 1, 3, true, true, 1}, 2},
      {{woven(40, 9, 9, 40), 8, 7, 2, 3, true, true, 2}, 2},
  };
}

ConvCase RandomConv(RandomStream& random) {
  ConvCase conv;
  ConvPlan& plan = conv.plan;
  for (;;) {
    plan.in.channels = 1 + random.Below(random.Below(4) == 0 ? 40 : 9);
    plan.in.height = 1 + random.Below(15);
    plan.in.width = 1 + random.Below(15);
    plan.in.order = random.Below(2) == 0 ? Shape::Order::kPlanar : Shape::Order::kInterleaved;
    plan.in.pitch =
        plan.in.order == Shape::Order::kPlanar ? 0 : plan.in.channels + random.Below(2) * 3;
    plan.outputs = 1 + random.Below(random.Below(4) == 0 ? 70 : 20);
    plan.kernel = 1 + random.Below(7);
    plan.stride = 1 + random.Below(2);
    plan.padding = random.Below(4);
    plan.bias = random.Below(4) != 0;
    plan.relu = random.Below(2) == 0;
    plan.pool = 1 + random.Below(3);
    conv.n = 1 + random.Below(6);
    const auto fits = [&](size_t size) {
      return size + 2 * plan.padding >= plan.kernel &&
             (size + 2 * plan.padding - plan.kernel) / plan.stride + 1 >= plan.pool;
    };
    if (fits(plan.in.height) && fits(plan.in.width)) return conv;
  }
}

ConvNumbers WholeNumbers(const ConvCase& conv, int most) { return DrawAll(conv, most); }
ConvNumbers NormalNumbers(const ConvCase& conv) { return DrawAll(conv, 0); }

ConvNumbers Reference(const ConvCase& conv, ConvNumbers given) {
  const ConvPlan& plan = conv.plan;
  const Extents e(plan);
  const size_t k = plan.kernel, pad = plan.padding;
  given.out.assign(given.d_out.size(), 0);
  given.d_in.assign(given.x.size(), 0);
  given.d_weight.assign(given.weight.size(), 0);
  given.d_bias.assign(plan.bias ? plan.outputs : 0, 0);
  // Calls f(input index, weight index) for the taps of output pixel (o, y, x) inside the image.
  const auto for_each_tap = [&](size_t example, size_t o, size_t y, size_t x, const auto& f) {
    for (size_t c = 0; c < e.channels; ++c) {
      for (size_t i = 0; i < k * k; ++i) {
        const size_t at_y = y * plan.stride + i / k, at_x = x * plan.stride + i % k;
        if (at_y < pad || at_y >= e.in_height + pad || at_x < pad || at_x >= e.in_width + pad) {
          continue;
        }
        f(((example * e.channels + c) * e.in_height + at_y - pad) * e.in_width + at_x - pad,
          (o * e.channels + c) * k * k + i);
      }
    }
  };
  for (size_t at = 0; at < given.out.size(); ++at) {
    const size_t x = at % e.pooled_width, y = at / e.pooled_width % e.pooled_height;
    const size_t o = at / (e.pooled_width * e.pooled_height) % plan.outputs;
    const size_t example = at / (e.pooled_width * e.pooled_height * plan.outputs);
    double most = 0;
    size_t where = 0;
    for (size_t i = 0; i < plan.pool * plan.pool; ++i) {
      double sum = plan.bias ? given.bias[o] : 0;
      for_each_tap(example, o, y * plan.pool + i / plan.pool, x * plan.pool + i % plan.pool,
                   [&](size_t in, size_t w) { sum += given.x[in] * given.weight[w]; });
      if (i == 0 || sum > most) most = sum, where = i;
    }
    given.out[at] = plan.relu ? std::max(most, 0.0) : most;
    if (plan.relu && most <= 0) continue;
    const double g = given.d_out[at];
    if (plan.bias) given.d_bias[o] += g;
    for_each_tap(example, o, y * plan.pool + where / plan.pool, x * plan.pool + where % plan.pool,
                 [&](size_t in, size_t w) {
                   given.d_in[in] += g * given.weight[w];
                   given.d_weight[w] += g * given.x[in];
                 });
  }
  return given;
}

ConvNumbers RunBlock(Isa isa, const ConvCase& conv, const ConvNumbers& given, size_t shift) {
  const std::unique_ptr<Block> block = MakeConv(isa, conv.plan);
  const size_t n = conv.n, last = block->tensors().size() - 1;
  const size_t packed = block->tensors()[last].offset + block->tensors()[last].size;
  Buffer in(n * block->in().stride(), shift), out(n * block->out().stride(), shift);
  Buffer d_in(n * block->in().stride(), shift), d_out(n * block->out().stride(), shift);
  Buffer weights(packed, shift), gradient(packed, shift);
  Buffer kept(block->kept(n), shift), scratch(block->scratch(n), shift);
  PutIn(block->in(), n, given.x, in.data());
  PutIn(block->out(), n, given.d_out, d_out.data());
  const std::vector<float> weight(given.weight.begin(), given.weight.end());
  const std::vector<float> bias(given.bias.begin(), given.bias.end());
  const std::vector<const float*> tensors = {weight.data(), bias.data()};
  block->Pack(std::span(tensors).first(last + 1), weights.data());

  ConvNumbers made = given;
  const ForwardPass forward = {n,       in.data(),      out.data(), weights.data(),
                               nullptr, scratch.data(), nullptr};
  block->Forward(forward);  // as in an evaluation
  const std::vector<double> evaluated = TakeOut(block->out(), n, out.data());
  ForwardPass keeping = forward;
  keeping.kept = kept.data();
  block->Forward(keeping);
  made.out = TakeOut(block->out(), n, out.data());
  // Compares bytes, because a NaN is not equal to itself.
  if (std::memcmp(made.out.data(), evaluated.data(), evaluated.size() * sizeof(double)) != 0) {
    made.out.clear();
  }

  BackwardPass backward = {n,
                           in.data(),
                           out.data(),
                           weights.data(),
                           kept.data(),
                           scratch.data(),
                           d_out.data(),
                           d_in.data(),
                           gradient.data()};
  block->Backward(backward);
  made.d_in = TakeOut(block->in(), n, d_in.data());
  std::vector<float> d_weight(weight.size()), d_bias(conv.plan.bias ? bias.size() : 0);
  const std::vector<float*> to = {d_weight.data(), d_bias.data()};
  block->Unpack(gradient.data(), std::span(to).first(last + 1));
  made.d_weight.assign(d_weight.begin(), d_weight.end());
  made.d_bias.assign(d_bias.begin(), d_bias.end());
  // Packed padding must be zero: packing what Unpack gave must restore it.
  Buffer again(packed, shift);
  const std::vector<const float*> from = {d_weight.data(), d_bias.data()};
  block->Pack(std::span(from).first(last + 1), again.data());
  if (!std::equal(again.data(), again.data() + packed, gradient.data())) made.d_weight.clear();

  for (const Buffer* buffer : {&in, &out, &d_in, &d_out, &weights, &gradient, &kept, &scratch}) {
    if (!buffer->GuardIsWhole()) made.out.clear();
  }
  return made;
}

std::string Differences(const ConvNumbers& a, const ConvNumbers& b, double tolerance) {
  // The reference has no padding to be zero.
  const auto padded = [](std::vector<double> values, const std::vector<double>& like) {
    if (values.size() + 1 == like.size()) values.push_back(0);
    return values;
  };
  return absl::StrCat(Compare("out", a.out, padded(b.out, a.out), tolerance),
                      Compare("d_in", a.d_in, padded(b.d_in, a.d_in), tolerance),
                      Compare("d_weight", a.d_weight, b.d_weight, tolerance),
                      Compare("d_bias", a.d_bias, b.d_bias, tolerance));
}

}  // namespace macaw::training::fused::fixtures
