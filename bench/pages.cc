// What the page pool saves: microseconds to take a block, to fill it from another one, and to give
// it back. Once with a pool that keeps blocks, and once with one that keeps none, so that the
// system maps and clears the pages of every block. The two take turns; every figure is a median.
//
//   bench_pages [REPETITIONS]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/page_pool.h"

namespace macaw::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Microseconds; 0 when there was no memory.
double TakeFillAndGive(PagePool& pool, Pages pages, const std::vector<std::byte>& contents) {
  const auto begin = std::chrono::steady_clock::now();
  const PageBlock block = pool.Take(contents.size(), pages);
  if (block.data == nullptr) return 0;
  std::memcpy(block.data, contents.data(), contents.size());
  pool.Give(block);
  const auto took = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration<double, std::micro>(took).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool Row(Pages pages, size_t bytes, int repetitions) {
  PagePool keeps_blocks, keeps_none(0);
  const std::vector<std::byte> contents(bytes, std::byte{7});
  std::vector<double> kept, mapped;
  TakeFillAndGive(keeps_blocks, pages, contents);  // the block that the others take
  for (int i = 0; i < repetitions; ++i) {
    kept.push_back(TakeFillAndGive(keeps_blocks, pages, contents));
    mapped.push_back(TakeFillAndGive(keeps_none, pages, contents));
    if (kept.back() == 0 || mapped.back() == 0) return false;
  }
  const double with_pool = Median(kept), without = Median(mapped);
  std::printf("%-8s %6zu | %12.1f %12.1f | %6.2f\n", pages == Pages::kFile ? "file" : "private",
              bytes / kMiB, with_pool, without, without / with_pool);
  std::fflush(stdout);
  return true;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  using macaw::Pages;
  const int repetitions = std::max(1, argc > 1 ? std::atoi(argv[1]) : 41);
  std::printf("%-8s %6s | %12s %12s | %s\n", "pages", "MiB", "pool, us", "no pool, us", "ratio");
  for (const Pages pages : {Pages::kPrivate, Pages::kFile}) {
    for (const size_t size : {1, 4, 16, 64, 256}) {
      if (!macaw::bench::Row(pages, size * macaw::bench::kMiB, repetitions)) {
        std::fprintf(stderr, "bench_pages: the system has no %zu MiB for a block\n", size);
        return 1;
      }
    }
  }
  return 0;
}
