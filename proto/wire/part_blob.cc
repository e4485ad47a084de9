#include "proto/wire/part_blob.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using google::protobuf::internal::WireFormatLite;

// Upper limit for a left-out client: its longest text and its row of numbers.
constexpr uint64_t kClientBytes = 2 * kMaxTextBytes;

// How often the top-level field occurs; -1 if the bytes are not a message.
int64_t CountField(std::span<const std::byte> bytes, int field) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  int64_t count = 0;
  while (const uint32_t tag = stream.ReadTag()) {
    count += WireFormatLite::GetTagFieldNumber(tag) == field ? 1 : 0;
    if (!WireFormatLite::SkipField(&stream, tag)) return -1;
  }
  return stream.ConsumedEntireMessage() ? count : -1;
}

}  // namespace

uint64_t MaxPartBlobBytes(uint64_t max_clients) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // protobuf sizes are int
  return std::min(kMostBytes, kMaxInlineBytes + kMaxPartBytes +
                                  std::min(max_clients, kMostBytes / kClientBytes) * kClientBytes);
}

absl::Status ParsePartBlob(std::span<const std::byte> bytes, uint64_t max_clients, v1::Part* part) {
  if (bytes.size() > MaxPartBlobBytes(max_clients)) {
    return Malformed("part_blob",
                     absl::StrCat("has ", bytes.size(), " bytes, more than the records of ",
                                  max_clients, " clients can take"));
  }
  const int64_t left_out = CountField(bytes, v1::Part::kLeftOutFieldNumber);
  if (left_out > 0 && static_cast<uint64_t>(left_out) > max_clients) {
    return Malformed("part_blob", absl::StrCat("leaves out ", left_out,
                                               " clients; a round has at most ", max_clients));
  }
  if (left_out < 0 || !part->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Malformed("part_blob", "does not hold a Part");
  return CheckClients(*part, max_clients);
}

absl::Status CheckClients(const v1::Part& part, uint64_t max_clients) {
  const uint64_t clients =
      static_cast<uint64_t>(part.left_out_size()) + part.included().client_size();
  if (clients <= max_clients) return absl::OkStatus();
  return Malformed("part",
                   absl::StrCat("names ", clients, " clients; a round has at most ", max_clients));
}

}  // namespace macaw::wire
