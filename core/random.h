#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace macaw {

// What a stream is used for. The numbers are part of every result: add at the end, never renumber.
enum class Purpose : uint32_t {
  kCohort = 1,
  kPartition = 2,
  kShuffle = 3,
  kAugment = 4,
  kDropout = 5,
  kInit = 6,
  kData = 7,
  kSplit = 8,
  kStraggler = 9,
  kTest = 10,
  kNoise = 11,
  kAvailability = 12,
  kDuration = 13,    // of emulated devices
  kPause = 14,       // of emulated devices
  kPlacement = 15,   // decides placement only, never a result
  kClientRule = 16,  // an algorithm's own, on a client; `extra` is what it calls its purpose
  kServerRule = 17,  // likewise, on the server
  kSweep = 18,       // the configurations of a random search; `client` is the sample
  kEvaluation = 19,  // whose rows are evaluated after a round
  kLabels = 20,      // label noise and concept shift; `phase` says which draw
  kAttack = 21,      // which clients are hostile
  kCommonRule = 22,  // an algorithm's own, the same on all clients of a round
};

// Everything that a random number may depend on. Equal keys give equal words on every machine, and
// so equal draws, but for Normal() and Gamma(): they use the C library's logarithm and cosine,
// whose last bits differ between libraries.
struct StreamKey {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kTest;
  Round round{};
  Phase phase{};
  ClientId client{};
  uint64_t extra = 0;  // epoch, tensor index, sample, ...
};

// A counter-based random stream (Philox4x32-10; Salmon et al., SC'11): block i is a function of
// (key, i). So the numbers do not depend on which thread draws them, in which order, or on which
// machine. No std distribution is used, because those differ between standard libraries. Not
// thread-safe; cheap to create and to copy (48 bytes).
class RandomStream {
 public:
  explicit RandomStream(const StreamKey& key);

  uint32_t NextU32();
  uint64_t NextU64();
  double Uniform();                // [0, 1), 53 bits
  uint64_t Below(uint64_t bound);  // unbiased, bound > 0 (Lemire 2019)
  double Normal();                 // mean 0, variance 1 (Box-Muller, both halves used)
  double Gamma(double shape);      // scale 1 (Marsaglia-Tsang 2000), shape > 0
  void Skip(uint64_t words);       // skips that many NextU32 draws

  // What a fresh stream's words are computed from, for processors that do it themselves
  // (device/philox.h): the key, and the upper half of every block's counter.
  struct Name {
    uint32_t key[2];
    uint32_t high[2];
  };
  Name name() const { return {{key_[0], key_[1]}, {high_[0], high_[1]}}; }

  // The same draws in bulk; several times as fast from some dozens on.
  void FillU64(std::span<uint64_t> out);                    // out[i] is NextU64()
  void FillBelow(uint64_t bound, std::span<uint64_t> out);  // out[i] is Below(bound − i)

  // Standard normals in bulk, about 20 times as fast as Normal(), with other values than Normal()
  // gives: float precision, |x| up to 6.7. Starts at the next unused block of four words and uses
  // 16 blocks for every group of 64 values, so value i depends on i alone and not on out.size().
  // The same bits on every processor.
  void FillNormal(std::span<float> out);

  // Fisher-Yates, from the back.
  template <typename T>
  void Shuffle(std::span<T> values) {
    uint64_t places[kBulk];
    for (size_t left = values.size(); left > 1;) {
      const size_t count = left - 1 < kBulk ? left - 1 : kBulk;
      FillBelow(left, std::span(places, count));
      for (size_t i = 0; i < count; ++i, --left) std::swap(values[left - 1], values[places[i]]);
    }
  }

  // A random point of the simplex, from a Dirichlet distribution with `dimensions` equal
  // concentrations.
  std::vector<double> Dirichlet(double concentration, size_t dimensions);

 private:
  static constexpr size_t kBulk = 128;

  void Refill();

  uint32_t key_[2];
  uint32_t high_[2];    // upper half of the counter: part of the stream's name
  uint64_t block_ = 0;  // lower half of the counter
  uint32_t words_[4];
  uint32_t used_ = 4;
  bool has_spare_ = false;
  double spare_ = 0;
};

// Draws `count` distinct numbers of [0, population) uniformly, in draw order (Floyd's sampling
// followed by a shuffle). Takes O(count) time and memory, whatever the population. Requires count
// <= population.
std::vector<uint64_t> SampleWithoutReplacement(RandomStream& stream, uint64_t population,
                                               uint64_t count);

}  // namespace macaw
