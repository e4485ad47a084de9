#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/container/flat_hash_set.h"
#include "core/random_groups.h"

namespace macaw {

RandomStream::RandomStream(const StreamKey& key) {
  // The stream's name (seven numbers) is hashed to 128 bits: 64 for Philox's key, 64 for the upper
  // half of its counter.
  const uint64_t name[] = {key.seed,         static_cast<uint64_t>(key.purpose),
                           key.round.value,  key.phase.value,
                           key.client.value, key.extra};
  const XXH128_hash_t hash = XXH3_128bits(name, sizeof(name));
  key_[0] = static_cast<uint32_t>(hash.low64);
  key_[1] = static_cast<uint32_t>(hash.low64 >> 32);
  high_[0] = static_cast<uint32_t>(hash.high64);
  high_[1] = static_cast<uint32_t>(hash.high64 >> 32);
}

void RandomStream::Refill() {
  uint32_t c0 = static_cast<uint32_t>(block_), c1 = static_cast<uint32_t>(block_ >> 32);
  uint32_t c2 = high_[0], c3 = high_[1];
  uint32_t k0 = key_[0], k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  words_[0] = c0;
  words_[1] = c1;
  words_[2] = c2;
  words_[3] = c3;
  ++block_;
  used_ = 0;
}

uint32_t RandomStream::NextU32() {
  if (used_ == 4) Refill();
  return words_[used_++];
}

uint64_t RandomStream::NextU64() {
  const uint64_t low = NextU32();
  return low | (static_cast<uint64_t>(NextU32()) << 32);
}

double RandomStream::Uniform() { return static_cast<double>(NextU64() >> 11) * 0x1.0p-53; }

uint64_t RandomStream::Below(uint64_t bound) {
  using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(NextU64()) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold)
      product = static_cast<Wide>(NextU64()) * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

void RandomStream::FillU64(std::span<uint64_t> out) {
  size_t at = 0;
  while (at < out.size() && used_ < 4) out[at++] = NextU64();
  if (used_ == 4) {  // else the pairs straddle the blocks: never where words are drawn in pairs
    const size_t groups = (out.size() - at) / kPairsInGroup;
    FillPairs(key_, high_, block_, groups, out.data() + at);
    block_ += groups * kBlocksInGroup;
    at += groups * kPairsInGroup;
    if (const size_t pairs = (out.size() - at) / 2; pairs > kBlocksInGroup / 4) {  // not worth less
      uint64_t group[kPairsInGroup];
      FillPairs(key_, high_, block_, 1, group);
      std::copy_n(group, 2 * pairs, out.data() + at);
      block_ += pairs;
      at += 2 * pairs;
    }
  }
  while (at < out.size()) out[at++] = NextU64();
}

void RandomStream::FillNormal(std::span<float> out) {
  const size_t whole = out.size() / kNormalsInGroup;
  FillNormals(key_, high_, block_, whole, out.data());
  block_ += whole * kBlocksInGroup;
  if (const std::span<float> rest = out.subspan(whole * kNormalsInGroup); !rest.empty()) {
    float group[kNormalsInGroup];
    FillNormals(key_, high_, block_, 1, group);
    std::copy_n(group, rest.size(), rest.begin());
    block_ += kBlocksInGroup;
  }
  used_ = 4;
  has_spare_ = false;
}

void RandomStream::FillBelow(uint64_t bound, std::span<uint64_t> out) {
  while (!out.empty()) {
    const RandomStream before = *this;
    FillU64(out);
    size_t i = 0;
    for (; i < out.size(); ++i) {
      const unsigned __int128 product = static_cast<unsigned __int128>(out[i]) * (bound - i);
      if (static_cast<uint64_t>(product) < bound - i) break;  // Below may draw again
      out[i] = static_cast<uint64_t>(product >> 64);
    }
    if (i == out.size()) return;
    *this = before;
    Skip(2 * i);
    out[i] = Below(bound - i);
    ++i;
    bound -= i;
    out = out.subspan(i);
  }
}

double RandomStream::Normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double u = 1.0 - Uniform();  // (0, 1]
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * Uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

double RandomStream::Gamma(double shape) {
  if (shape < 1.0) {
    // Gamma(a) = Gamma(a + 1) · U^(1/a); in logarithms, since U^(1/a) underflows for small a.
    const double log_u = std::log(1.0 - Uniform());
    return std::exp(std::log(Gamma(shape + 1.0)) + log_u / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = Normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0.0) continue;
    const double u = 1.0 - Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

void RandomStream::Skip(uint64_t words) {
  while (words > 0 && used_ < 4) ++used_, --words;
  block_ += words / 4;
  if (words % 4 > 0) {
    Refill();
    used_ = static_cast<uint32_t>(words % 4);
  }
}

std::vector<double> RandomStream::Dirichlet(double concentration, size_t dimensions) {
  std::vector<double> point(dimensions);
  double sum = 0;
  for (double& p : point) sum += (p = Gamma(concentration));
  if (sum > 0 && std::isfinite(sum)) {
    for (double& p : point) p /= sum;
  } else if (dimensions > 0) {  // every draw underflowed: the limit is one corner, uniformly
    for (double& p : point) p = 0;
    point[Below(dimensions)] = 1;
  }
  return point;
}

std::vector<uint64_t> SampleWithoutReplacement(RandomStream& stream, uint64_t population,
                                               uint64_t count) {
  std::vector<uint64_t> chosen;
  chosen.reserve(count);
  absl::flat_hash_set<uint64_t> seen;
  seen.reserve(count);
  for (uint64_t last = population - count; last < population; ++last) {
    const uint64_t draw = stream.Below(last + 1);
    chosen.push_back(seen.insert(draw).second ? draw : last);
    seen.insert(chosen.back());
  }
  stream.Shuffle(std::span(chosen));
  return chosen;
}

}  // namespace macaw
