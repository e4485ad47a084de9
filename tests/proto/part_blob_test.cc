#include "proto/wire/part_blob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/vector.h"
#include "proto/wire/limits.h"

namespace macaw::wire {
namespace {

using testing::HasSubstr;

std::span<const std::byte> BytesIn(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(ParsePartBlob, ReadsWhatWasWritten) {
  v1::Part part;
  part.set_round(7);
  for (int i = 0; i < 10; ++i) part.add_left_out()->set_message(std::string(kMaxTextBytes, 'x'));
  v1::Part back;
  ASSERT_TRUE(ParsePartBlob(BytesIn(part.SerializeAsString()), 10, &back).ok());
  EXPECT_EQ(back.SerializeAsString(), part.SerializeAsString());
}

TEST(ParsePartBlob, CountsClientsBeforeItMakesObjectsOfThem) {
  // Two bytes each on the wire, some hundred in memory.
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += {0x2a, 0x00};
  v1::Part part;
  const absl::Status status = ParsePartBlob(BytesIn(bytes), 999, &part);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1000 clients"));
  EXPECT_EQ(part.left_out_size(), 0);
  EXPECT_TRUE(ParsePartBlob(BytesIn(bytes), 1000, &part).ok());
}

// The fuzzer found that clients in the sum were not counted with those left out. The server refused
// such a part later and kept its records until the session ended.
TEST(ParsePartBlob, CountsClientsOfTheSumAndThoseLeftOutTogether) {
  v1::Part sent;
  for (int i = 0; i < 7; ++i) sent.mutable_included()->add_client(i);
  for (int i = 0; i < 3; ++i) sent.add_left_out();
  v1::Part part;
  EXPECT_TRUE(ParsePartBlob(BytesIn(sent.SerializeAsString()), 10, &part).ok());
  const absl::Status status = ParsePartBlob(BytesIn(sent.SerializeAsString()), 9, &part);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("10 clients"));
}

TEST(ParsePartBlob, RefusesMoreBytesThanItsClientsCanTakeAndMoreThanAnIntCounts) {
  EXPECT_LT(MaxPartBlobBytes(UINT64_MAX), uint64_t{1} << 31);
  EXPECT_GE(MaxPartBlobBytes(1000), 1000 * kMaxTextBytes);
  // Never touched beyond its first page: the size alone decides.
  const AlignedBuffer huge = AlignedBuffer::Unset((uint64_t{1} << 31) + 64);
  v1::Part part;
  EXPECT_THAT(std::string(ParsePartBlob(huge.bytes(), 100, &part).message()), HasSubstr("bytes"));
}

TEST(ParsePartBlob, RefusesGarbage) {
  v1::Part part;
  EXPECT_THAT(std::string(ParsePartBlob(BytesIn(std::string(50, '\x5f')), 10, &part).message()),
              HasSubstr("does not hold a Part"));
}

}  // namespace
}  // namespace macaw::wire
