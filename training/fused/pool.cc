#include "training/fused/pool.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace macaw::training::fused {
namespace {

// The planes that a pool works on. Interleaved: one plane whose pixels are vectors of all channels.
// Planar: one plane of single numbers per channel.
struct Planes {
  explicit Planes(const Shape& shape)
      : interleaved(shape.order == Shape::Order::kInterleaved),
        count(interleaved ? 1 : shape.channels),
        pixel(interleaved ? shape.pitch : 1),
        row(shape.width * pixel),
        plane(shape.height * row),
        channels(interleaved ? shape.channels : 1) {}

  bool interleaved;
  size_t count;
  size_t pixel, row, plane;  // floats to the next one
  size_t channels;           // without padding, in a pixel
};

class Pool : public Block {
 public:
  explicit Pool(const PoolPlan& plan)
      : Block(plan.in, OutOf(plan)), plan_(plan), from_(plan.in), to_(out()) {}

 protected:
  // Calls f(first input float, first output float) for each window.
  template <typename F>
  void ForEachWindow(const F& f) const {
    for (size_t p = 0; p < from_.count; ++p) {
      for (size_t y = 0; y < out().height; ++y) {
        for (size_t x = 0; x < out().width; ++x) {
          f(p * from_.plane + y * plan_.stride * from_.row + x * plan_.stride * from_.pixel,
            p * to_.plane + y * to_.row + x * to_.pixel);
        }
      }
    }
  }
  // Calls f(offset in floats from the window's first pixel) for each pixel of the window.
  template <typename F>
  void ForEachPixel(const F& f) const {
    for (size_t y = 0; y < plan_.height; ++y) {
      for (size_t x = 0; x < plan_.width; ++x) f(y * from_.row + x * from_.pixel);
    }
  }
  size_t channels() const { return from_.channels; }
  size_t window() const { return plan_.height * plan_.width; }

 private:
  static Shape OutOf(const PoolPlan& plan) {
    Shape out = plan.in;
    out.height = (plan.in.height - plan.height) / plan.stride + 1;
    out.width = (plan.in.width - plan.width) / plan.stride + 1;
    return out;
  }

  const PoolPlan plan_;
  const Planes from_, to_;
};

// Remembers the position of each maximum.
class MaxPool final : public Pool {
 public:
  using Pool::Pool;

  size_t kept(size_t n) const override { return n * out().stride(); }

  void Forward(const ForwardPass& pass) const override {
    std::fill_n(pass.out, pass.n * out().stride(), 0.0f);
    for (size_t e = 0; e < pass.n; ++e) {
      const float* const in_e = pass.in + e * in().stride();
      float* const out_e = pass.out + e * out().stride();
      int32_t* const place = pass.kept == nullptr
                                 ? nullptr
                                 : reinterpret_cast<int32_t*>(pass.kept) + e * out().stride();
      ForEachWindow([&](size_t from, size_t to) {
        for (size_t c = 0; c < channels(); ++c) {
          float most = in_e[from + c];
          size_t where = from + c;
          ForEachPixel([&](size_t at) {
            const float value = in_e[from + at + c];
            if (value > most || std::isnan(value)) most = value, where = from + at + c;
          });
          out_e[to + c] = most;
          if (place != nullptr) place[to + c] = static_cast<int32_t>(where);
        }
      });
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    std::fill_n(pass.d_in, pass.n * in().stride(), 0.0f);
    for (size_t e = 0; e < pass.n; ++e) {
      float* const d_in = pass.d_in + e * in().stride();
      const float* const d_out = pass.d_out + e * out().stride();
      const int32_t* const place = reinterpret_cast<const int32_t*>(pass.kept) + e * out().stride();
      ForEachWindow([&](size_t, size_t to) {
        for (size_t c = 0; c < channels(); ++c) d_in[place[to + c]] += d_out[to + c];
      });
    }
  }
};

class AvgPool final : public Pool {
 public:
  using Pool::Pool;

  void Forward(const ForwardPass& pass) const override {
    std::fill_n(pass.out, pass.n * out().stride(), 0.0f);
    const auto size = static_cast<float>(window());
    for (size_t e = 0; e < pass.n; ++e) {
      const float* const in_e = pass.in + e * in().stride();
      float* const out_e = pass.out + e * out().stride();
      ForEachWindow([&](size_t from, size_t to) {
        ForEachPixel([&](size_t at) {
          for (size_t c = 0; c < channels(); ++c) out_e[to + c] += in_e[from + at + c];
        });
        for (size_t c = 0; c < channels(); ++c) out_e[to + c] /= size;
      });
    }
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.d_in == nullptr) return;
    std::fill_n(pass.d_in, pass.n * in().stride(), 0.0f);
    const auto size = static_cast<float>(window());
    for (size_t e = 0; e < pass.n; ++e) {
      float* const d_in = pass.d_in + e * in().stride();
      const float* const d_out = pass.d_out + e * out().stride();
      ForEachWindow([&](size_t from, size_t to) {
        ForEachPixel([&](size_t at) {
          for (size_t c = 0; c < channels(); ++c) d_in[from + at + c] += d_out[to + c] / size;
        });
      });
    }
  }
};

}  // namespace

std::unique_ptr<Block> MakeMaxPool(const PoolPlan& plan) { return std::make_unique<MaxPool>(plan); }
std::unique_ptr<Block> MakeAvgPool(const PoolPlan& plan) { return std::make_unique<AvgPool>(plan); }

}  // namespace macaw::training::fused
