// How fast blobs are named: DigestOf (libsodium, one BLAKE2b chain) beside BlobDigest on each
// instruction set with one thread (CPU time), and on the best one with all cores (wall time). GB/s,
// best of several.
//
//   bench_digest [LARGEST IN MB]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/frame.h"
#include "core/blob_digest.h"
#include "core/buffer.h"
#include "core/cores.h"
#include "core/random.h"

namespace macaw::bench {
namespace {

// Wall time, because other threads work, too; the shortest of many runs.
template <typename F>
double ShortestWall(const F& work) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (double total = 0; total < 1;) {
    const auto begin = Clock::now();
    work();
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, took);
    total += took;
  }
  return best;
}

void Main(double largest) {
  const std::vector<Isa> isas = SupportedIsas();
  const size_t cores = UsableCores();
  std::printf("%11s | %9s |", "bytes", "DigestOf");
  for (const Isa isa : isas) std::printf(" %9s", std::string(Name(isa)).c_str());
  std::printf(" | %9s, %zu threads\n", std::string(Name(isas.front())).c_str(), cores);
  const double sizes[] = {64 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 45e6, 400e6};
  for (const double size : sizes) {
    if (size > largest) break;
    AlignedBuffer buffer = AlignedBuffer::Shareable(static_cast<size_t>(size) / 8 * 8);
    RandomStream({.seed = 1}).FillU64(buffer.As<uint64_t>());
    const std::span<const std::byte> bytes = std::as_const(buffer).bytes();
    const auto rate = [&](double seconds) {
      return 1e-9 * static_cast<double>(bytes.size()) / seconds;
    };
    Digest name;  // keeps the compiler from leaving a run out
    const double plain = Shortest([&] { name = DigestOf(bytes); });
    std::printf("%11zu | %9.2f |", bytes.size(), rate(plain));
    for (const Isa isa : isas)
      std::printf(" %9.2f", rate(Shortest([&] { name = BlobDigestWith(isa, 1, bytes); })));
    std::printf(" | %9.2f\n",
                rate(ShortestWall([&] { name = BlobDigestWith(isas.front(), cores, bytes); })));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  macaw::bench::PrintHeading(argc, argv);
  macaw::bench::Main(argc > 1 ? 1e6 * std::atof(argv[1]) : 400e6);
  return 0;
}
