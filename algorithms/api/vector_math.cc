#include "algorithms/api/vector_math.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "core/normal_tail.h"

namespace macaw::algorithms {
namespace {

void AssertAlike([[maybe_unused]] ConstVectorView a, [[maybe_unused]] ConstVectorView b) {
  assert(SameLayout(a.layout, b.layout) && a.bytes.size() == b.bytes.size());
}

// Adds deviation · fill's values to each parameter.
template <typename Normal, typename F>
void AddNoise(F&& fill, double deviation, VectorView v) {
  constexpr size_t kPiece = 1 << 16;  // of values; FillNormal draws them in groups of 64
  std::vector<Normal> normal;
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : v.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<T> values = v.As<T>().subspan(entry.offset, entry.size);
      for (size_t at = 0; at < values.size(); at += kPiece) {
        const std::span<T> piece = values.subspan(at, std::min(kPiece, values.size() - at));
        normal.resize(piece.size());
        fill(std::span(normal));
        for (size_t i = 0; i < piece.size(); ++i)
          piece[i] = static_cast<T>(double{piece[i]} + deviation * double{normal[i]});
      }
    }
  });
}

}  // namespace

bool SameLayout(const ParameterLayout* a, const ParameterLayout* b) {
  return a == b || (a != nullptr && b != nullptr && a->digest() == b->digest());
}

void Copy(ConstVectorView from, VectorView to) {
  AssertAlike(from, to);
  std::memmove(to.bytes.data(), from.bytes.data(), to.bytes.size());
}

void Zero(VectorView v) { std::memset(v.bytes.data(), 0, v.bytes.size()); }

void Fill(double value, VectorView v) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : v.layout->entries()) {
      std::ranges::fill(v.As<T>().subspan(entry.offset, entry.size), static_cast<T>(value));
    }
  });
}

void Scale(double factor, VectorView v) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    const T f = static_cast<T>(factor);
    for (T& element : v.As<T>()) element *= f;
  });
}

void Clamp(double bound, VectorView v) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    const T most = static_cast<T>(bound);
    for (T& element : v.As<T>()) element = std::clamp(element, -most, most);
  });
}

void Add(ConstVectorView x, VectorView y) {
  AssertAlike(x, y);
  DispatchDType(y.dtype(), [&]<typename T>(T) {
    const std::span<const T> from = x.As<T>();
    const std::span<T> into = y.As<T>();
    for (size_t i = 0; i < into.size(); ++i) into[i] += from[i];
  });
}

void Subtract(ConstVectorView a, ConstVectorView b, VectorView out) {
  AssertAlike(a, b);
  AssertAlike(a, out);
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    const std::span<const T> left = a.As<T>();
    const std::span<const T> right = b.As<T>();
    const std::span<T> into = out.As<T>();
    for (size_t i = 0; i < into.size(); ++i) into[i] = left[i] - right[i];
  });
}

void Axpy(double factor, ConstVectorView x, VectorView y) {
  AssertAlike(x, y);
  DispatchDType(y.dtype(), [&]<typename T>(T) {
    const T f = static_cast<T>(factor);
    const std::span<const T> from = x.As<T>();
    const std::span<T> into = y.As<T>();
    for (size_t i = 0; i < into.size(); ++i) into[i] += f * from[i];
  });
}

namespace {

// The bytes of a vector's parameters; the buffers follow them.
size_t ParameterBytes(const ParameterLayout& layout) {
  return layout.parameter_size() * SizeOf(layout.dtype());
}

}  // namespace

void ScaleParameters(double factor, VectorView v) {
  v.bytes = v.bytes.first(ParameterBytes(*v.layout));
  Scale(factor, v);
}

void CopyBuffers(ConstVectorView from, VectorView to) {
  AssertAlike(from, to);
  const size_t begin = ParameterBytes(*to.layout);
  std::memmove(to.bytes.data() + begin, from.bytes.data() + begin, to.bytes.size() - begin);
}

void AddBuffers(ConstVectorView from, VectorView to) {
  AssertAlike(from, to);
  from.bytes = from.bytes.subspan(ParameterBytes(*to.layout));
  to.bytes = to.bytes.subspan(ParameterBytes(*to.layout));
  Add(from, to);
}

void ZeroBuffers(VectorView v) {
  v.bytes = v.bytes.subspan(ParameterBytes(*v.layout));
  Zero(v);
}

double SquaredNorm(ConstVectorView v) {
  return DispatchDType(v.dtype(), [&]<typename T>(T) {
    double sum = 0;
    for (const LayoutEntry& entry : v.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      for (const T x : v.As<T>().subspan(entry.offset, entry.size)) sum += double{x} * double{x};
    }
    return sum;
  });
}

void AddNormal(RandomStream random, double deviation, VectorView v) {
  AddNoise<float>([&](std::span<float> normal) { random.FillNormal(normal); }, deviation, v);
}

void AddNormalWithTail(RandomStream random, double deviation, VectorView v) {
  AddNoise<double>([&](std::span<double> normal) { FillNormalWithTail(random, normal); }, deviation,
                   v);
}

double Dot(ConstVectorView a, ConstVectorView b) {
  AssertAlike(a, b);
  return DispatchDType(a.dtype(), [&]<typename T>(T) {
    double sum = 0;
    for (const LayoutEntry& entry : a.layout->entries()) {
      const std::span<const T> left = a.As<T>().subspan(entry.offset, entry.size);
      const std::span<const T> right = b.As<T>().subspan(entry.offset, entry.size);
      for (size_t i = 0; i < left.size(); ++i) sum += double{left[i]} * double{right[i]};
    }
    return sum;
  });
}

}  // namespace macaw::algorithms
