// Blocks of numbers are read as they are described, and no bytes harm their reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/blocks.h"
#include "core/half.h"
#include "core/random.h"
#include "tests/core/written_blocks.h"

namespace macaw {
namespace {

using testing_support::Floats;
using testing_support::Integers;
using testing_support::Normals;
using testing_support::Write;

// A block as it is described in blocks.h, read bit by bit.
class PlainReader {
 public:
  explicit PlainReader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}

  // The next block's numbers: integers, or the bits of floats. Nothing: it is damaged.
  std::optional<std::vector<uint64_t>> Next(size_t count, bool integers) {
    std::vector<uint64_t> block(count, 0);
    if (zeros_ > 0) {
      --zeros_;
      return block;
    }
    const uint64_t tag = Take(8);
    if (tag == 0 && good_) zeros_ = Varint(uint64_t{1} << 40);
    if (tag == 0) return Good(block);
    const uint64_t kind = tag & 7, where = tag >> 3 & 3, no_zero = tag >> 5 & 1;
    if (tag >> 6 != 0 || kind == 0 || kind > 5 || where > 2) return std::nullopt;
    std::vector<size_t> places(count);
    std::iota(places.begin(), places.end(), 0);
    if (where != 0) {
      const uint64_t values = Varint(count);
      if (values == 0 || !good_) return std::nullopt;
      places.clear();
      if (where == 1) {
        for (size_t i = 0; i < count; ++i)
          if (Take(1) != 0) places.push_back(i);
      } else {
        for (size_t i = 0; i < values && good_; ++i) {
          places.push_back(Take(9));
          if (places[i] >= count || (i > 0 && places[i] <= places[i - 1])) return std::nullopt;
        }
      }
      Align();
      if (places.size() != values || !good_) return std::nullopt;
    }
    if (integers != (kind == 1)) return std::nullopt;
    uint64_t width = kind == 2 ? 32 : 16, shift = 0;
    float step = 0;
    if (kind == 1) {
      width = Take(8);
      shift = Take(8);
      if (width == 0 || width > 64 || shift > 63) return std::nullopt;
    } else if (kind == 5) {
      step = std::bit_cast<float>(static_cast<uint32_t>(Take(32)));
      width = Take(8);
      if (width > 9 || !std::isfinite(step)) return std::nullopt;
    }
    for (const size_t place : places) {
      const uint64_t code = Take(width);
      if (!good_) return std::nullopt;
      float value = std::bit_cast<float>(static_cast<uint32_t>(code));
      if (kind == 3) value = FromHalf(static_cast<uint16_t>(code));
      if (kind == 4) value = std::bit_cast<float>(static_cast<uint32_t>(code << 16));
      if (kind == 5) {
        const int from_one = static_cast<int>(code + no_zero) + 1;
        value = static_cast<float>(double{step} * (from_one / 2 * (from_one % 2 == 0 ? 1 : -1)));
      }
      const uint64_t integer = (code >> 1 ^ (code % 2 == 0 ? 0 : ~uint64_t{0})) << shift;
      block[place] = kind == 1 ? integer : std::bit_cast<uint32_t>(value);
    }
    Align();
    return Good(block);
  }

 private:
  uint64_t Take(uint64_t bits) {
    uint64_t value = 0;
    for (uint64_t bit = 0; bit < bits; ++bit, ++at_) {
      if (at_ / 8 >= bytes_.size()) {
        good_ = false;
        return 0;
      }
      value |= (static_cast<uint64_t>(bytes_[at_ / 8]) >> at_ % 8 & 1) << bit;
    }
    return value;
  }
  uint64_t Varint(uint64_t most) {
    uint64_t value = 0;
    for (int i = 0; i < 9 && good_; ++i) {
      const uint64_t byte = Take(8);
      value |= (byte & 127) << 7 * i;
      if (byte >= 128) continue;
      good_ = good_ && value <= most;
      return value;
    }
    good_ = false;
    return 0;
  }
  void Align() { at_ = (at_ + 7) / 8 * 8; }
  std::optional<std::vector<uint64_t>> Good(std::vector<uint64_t>& block) const {
    return good_ ? std::optional(std::move(block)) : std::nullopt;
  }

  const std::vector<std::byte>& bytes_;
  size_t at_ = 0;  // bits
  uint64_t zeros_ = 0;
  bool good_ = true;
};

// Whether the reader refuses or gives what the plain one does; it is at the end then. Of each
// block's size.
size_t CompareWithPlain(const std::vector<std::byte>& bytes, const std::vector<size_t>& sizes) {
  // Their own memory, so that a sanitizer sees what is read beyond.
  const std::vector<std::byte> exact(bytes);
  BlockReader reader(exact), sparse(exact);
  PlainReader plain(exact);
  for (size_t read = 0; read < sizes.size(); ++read) {
    const size_t size = sizes[read];
    const bool integers = reader.HasIntegers();
    const auto expected = plain.Next(size, integers);
    Integers as_integers(size, 7);
    Floats as_floats(size, 7), spread(size);
    BlockValues some;
    const absl::Status status = integers ? reader.Integers(as_integers) : reader.Values(as_floats);
    const absl::Status other = integers ? sparse.Integers(as_integers) : sparse.Values(size, some);
    EXPECT_EQ(status.ok(), expected.has_value()) << status;
    EXPECT_EQ(other.message(), status.message());
    if (!status.ok() || !expected.has_value()) return read;
    for (size_t i = 0; !integers && i < some.count; ++i)
      spread[some.all ? i : some.places[i]] = some.values[i];
    for (size_t i = 0; i < size; ++i) {
      const uint64_t number =
          integers ? static_cast<uint64_t>(as_integers[i]) : std::bit_cast<uint32_t>(as_floats[i]);
      EXPECT_EQ(number, (*expected)[i]);
      if (!integers) {
        EXPECT_EQ(std::bit_cast<uint32_t>(spread[i]), (*expected)[i]);
      }
      if (number != (*expected)[i]) return read;
    }
    EXPECT_EQ(reader.left(), sparse.left());
  }
  return sizes.size();
}

// Blocks of any form, each written after the other, and of any size.
TEST(Blocks, AreReadAsAPlainReaderReadsThem) {
  RandomStream random({.seed = 31});
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
    BlockWriter writer(&bytes);
    for (uint64_t blocks = 1 + random.Below(4); blocks > 0; --blocks) {
      constexpr size_t kEdges[] = {1, 7, 8, 9, 63, 64, 65, 127, 511, 512};
      const size_t size =
          random.Below(2) == 0 ? kEdges[random.Below(std::size(kEdges))] : 1 + random.Below(512);
      sizes.push_back(size);
      const uint64_t kept = 1 + random.Below(3) * random.Below(100);
      const auto width = static_cast<int>(random.Below(64));
      const int most = 1 + static_cast<int>(random.Below(255));
      const auto step = static_cast<float>(std::exp(5 * random.Normal()));
      Integers integers(size);
      Floats floats(size);
      const uint64_t kind = random.Below(5);
      for (size_t at = 0; at < size; ++at) {
        if (random.Below(kept) != 0) continue;
        const auto any = static_cast<uint32_t>(random.NextU64());
        const int k = static_cast<int>(random.Below(static_cast<uint64_t>(2 * most + 1))) - most;
        integers[at] = static_cast<int64_t>(random.NextU64()) >> width;
        floats[at] = kind == 1   ? std::bit_cast<float>(any)
                     : kind == 2 ? FromHalf(static_cast<uint16_t>(any))
                     : kind == 3 ? std::bit_cast<float>(any & 0xffff0000u)
                                 : static_cast<float>(double{step} * k);
      }
      kind == 0 ? writer.Integers(integers)
                : writer.Values(floats, {.short_floats = true, .levels = 255});
    }
    writer.End();
    ASSERT_EQ(CompareWithPlain(bytes, sizes), sizes.size());
    if (testing::Test::HasFailure()) return;
    // A byte changed, some cut off, or bytes of any kind behind a good tag.
    const std::vector<std::byte> good = bytes;
    for (int change = 0; change < 10; ++change) {
      bytes = good;
      bytes[random.Below(change % 2 == 0 ? std::min<size_t>(bytes.size(), 9) : bytes.size())] =
          static_cast<std::byte>(random.Below(256));
      if (random.Below(3) == 0) bytes.resize(random.Below(bytes.size() + 1));
      CompareWithPlain(bytes, sizes);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Random bytes, and a bit changed in good ones, give numbers or an error.
TEST(Blocks, AnyBytesAreRead) {
  RandomStream random({.seed = 4});
  Floats sparse(512), levels(512, 0.25f);
  sparse[3] = 1;
  levels[7] = -0.5f;
  const std::vector<std::byte> good =
      Write<Floats>({Normals(512, 1), sparse, levels, Floats(512), Normals(9, 2)},
                    {.short_floats = true, .levels = 3})
          .bytes;
  size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good;
    if (i % 2 == 0) {
      bytes.resize(random.Below(200));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    } else {
      const uint64_t bit = random.Below(bytes.size() * 8);
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      bytes.resize(bytes.size() - random.Below(2) * random.Below(bytes.size()));
    }
    BlockReader reader(bytes);
    Floats values(512);
    Integers integers(512);
    for (int block = 0; block < 4; ++block) {
      const absl::Status status =
          reader.HasIntegers() ? reader.Integers(integers) : reader.Values(values);
      refused += status.ok() ? 0 : 1;
      if (!status.ok()) break;
    }
  }
  EXPECT_GT(refused, 5000u);
}

TEST(Blocks, RefusesPlacesThatDoNotAscend) {
  Floats values(512);
  values[3] = 1.5f;
  values[500] = -2;
  std::vector<std::byte> bytes = Write<Floats>({values}).bytes;
  bytes[2] = static_cast<std::byte>(0xff);  // the first place: 511, behind the second
  bytes[3] |= static_cast<std::byte>(1);
  BlockReader reader(bytes);
  EXPECT_THAT(std::string(reader.Values(values).message()), ::testing::HasSubstr("places"));
}

}  // namespace
}  // namespace macaw
