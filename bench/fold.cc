// How fast contributions are folded: ExactSum::Add and Merge against memcpy of a vector of the same
// length, for 1e3 … 1e7 parameters. Prints a table; every figure is the best of several runs.
//
//   bench_fold [LARGEST]

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "bench/frame.h"
#include "core/isa.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::aggregation {
namespace {

void Row(DType dtype, int64_t count) {
  const LayoutPtr layout = ParameterLayout::Scalars("w", count, dtype);
  FlatVector vector(layout);
  RandomStream random({.seed = 1});
  DispatchDType(dtype, [&]<typename T>(T) {
    for (T& v : vector.As<T>()) v = static_cast<T>(random.Uniform() - 0.5);
  });
  const GridOrder order{100, 1e12, 1, uint64_t{1} << 32};
  const std::vector<ChannelSpec> channels = {{.name = "delta", .layout = layout}};
  ExactSum sum = *ExactSum::Make(channels, order);
  ExactSum other = *ExactSum::Make(channels, order);
  const ConstVectorView view = vector.view();
  FlatVector copy(layout);

  const double copied = bench::Shortest(
      [&] { std::memcpy(copy.view().bytes.data(), view.bytes.data(), view.bytes.size()); });
  const double added = bench::Shortest([&] {
    if (!sum.Add({ClientId(1), 37, 1, {&view, 1}}).ok()) std::abort();
  });
  // The first sum is not empty: an empty one would take the other's memory over.
  if (!other.Add({ClientId(1), 37, 1, {&view, 1}}).ok()) std::abort();
  const double merged = bench::Shortest([&] {
    if (!sum.Merge(std::move(other)).ok()) std::abort();
  });

  const auto n = static_cast<double>(count);
  const double in = static_cast<double>(view.bytes.size());
  const double integers = n * 8 * (dtype == DType::kF32 ? 1 : 3);
  // Bytes moved: Add reads the values twice (check, fold), reads and writes the integers; Merge
  // reads both sums and writes one.
  std::printf("%-8s %9lld | %8.3f %7.1f | %8.3f %7.1f | %8.3f %7.1f\n",
              std::string(Name(dtype)).c_str(), static_cast<long long>(count), copied / n * 1e9,
              2 * in / copied * 1e-9, added / n * 1e9, (2 * in + 2 * integers) / added * 1e-9,
              merged / n * 1e9, 3 * integers / merged * 1e-9);
}

}  // namespace
}  // namespace macaw::aggregation

int main(int argc, char** argv) {
  macaw::bench::PrintHeading(argc, argv);
  const double largest = argc > 1 ? std::atof(argv[1]) : 1e7;
  std::printf("instruction set: %s\n", std::string(macaw::Name(macaw::BestIsa())).c_str());
  std::printf("%-8s %9s | %16s | %16s | %16s\n", "dtype", "params", "memcpy", "Add", "Merge");
  std::printf("%-8s %9s | %8s %7s | %8s %7s | %8s %7s\n", "", "", "ns/param", "GB/s", "ns/param",
              "GB/s", "ns/param", "GB/s");
  for (const macaw::DType dtype : {macaw::DType::kF32, macaw::DType::kF64}) {
    for (int64_t count = 1000; count <= static_cast<int64_t>(largest); count *= 10) {
      macaw::aggregation::Row(dtype, count);
    }
  }
  return 0;
}
