#include "proto/wire/chunk.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

// Protobuf tags: field number << 3 | wire type.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint32_t kDigestTag = 1 << 3 | kBytes, kOffsetTag = 2 << 3 | kVarint;
constexpr uint32_t kChecksumTag = 3 << 3 | kFixed64, kDataTag = 4 << 3 | kBytes;
constexpr uint32_t kSessionTag = 5 << 3 | kVarint;

// A position in a list of slices.
class Cursor {
 public:
  explicit Cursor(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const grpc::Slice& slice : slices) left_ += slice.size();
  }
  size_t left() const { return left_; }

  // The next contiguous bytes, at most `most`; empty only at the end.
  std::span<const std::byte> Take(size_t most) {
    while (slice_ < slices_.size() && at_ == slices_[slice_].size()) ++slice_, at_ = 0;
    if (slice_ == slices_.size()) return {};
    const grpc::Slice& slice = slices_[slice_];
    const size_t n = std::min(most, slice.size() - at_);
    const auto* begin = reinterpret_cast<const std::byte*>(slice.begin()) + at_;
    at_ += n, left_ -= n;
    return {begin, n};
  }

  bool Read(std::span<std::byte> out) {
    if (out.size() > left_) return false;
    while (!out.empty()) {
      const auto piece = Take(out.size());
      std::memcpy(out.data(), piece.data(), piece.size());
      out = out.subspan(piece.size());
    }
    return true;
  }

  bool ReadVarint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      std::byte b;
      if (!Read({&b, 1})) return false;
      value |= static_cast<uint64_t>(b & std::byte{0x7f}) << shift;
      if ((b & std::byte{0x80}) == std::byte{0}) return true;
    }
    return false;
  }

  bool Skip(size_t n) {
    if (n > left_) return false;
    while (n > 0) n -= Take(n).size();
    return true;
  }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0, at_ = 0, left_ = 0;
};

bool SkipField(Cursor& in, uint64_t tag) {
  uint64_t n;
  switch (tag & 7) {
    case kVarint:
      return in.ReadVarint(n);
    case kFixed64:
      return in.Skip(8);
    case kFixed32:
      return in.Skip(4);
    case kBytes:
      return in.ReadVarint(n) && n <= in.left() && in.Skip(n);
    default:
      return false;
  }
}

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

}  // namespace

grpc::ByteBuffer EncodeChunk(std::shared_ptr<const AlignedBuffer> blob, uint64_t offset,
                             size_t size, const Digest& digest, SessionId session) {
  const auto data = blob->bytes().subspan(offset, size);
  std::string head;
  if (!digest.IsZero()) {
    PutVarint(head, kDigestTag);
    PutVarint(head, digest.bytes.size());
    head.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  if (session.value != 0) {
    PutVarint(head, kSessionTag);
    PutVarint(head, session.value);
  }
  PutVarint(head, kOffsetTag);
  PutVarint(head, offset);
  PutVarint(head, kChecksumTag);
  const uint64_t checksum = Checksum(data);
  for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>(checksum >> (8 * i)));
  PutVarint(head, kDataTag);
  PutVarint(head, size);
  // The slice holds a reference to the whole blob. gRPC releases it when the bytes are sent.
  auto* owner = new std::shared_ptr<const AlignedBuffer>(std::move(blob));
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(head),
      grpc::Slice(
          const_cast<std::byte*>(data.data()), data.size(),
          [](void* p) { delete static_cast<std::shared_ptr<const AlignedBuffer>*>(p); }, owner)};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<ReceivedChunk> DecodeChunk(const grpc::ByteBuffer& buffer) {
  ReceivedChunk chunk;
  if (!buffer.Valid() || !buffer.Dump(&chunk.slices).ok())
    return Malformed("chunk", "unreadable message");
  Cursor in(chunk.slices);
  while (in.left() > 0) {
    uint64_t tag, n;
    if (!in.ReadVarint(tag) || tag >> 3 == 0) return Malformed("chunk", "a field's tag is damaged");
    bool good = true;
    switch (tag) {
      case kDigestTag:
        good = in.ReadVarint(n) && n == chunk.digest.bytes.size() &&
               in.Read(std::as_writable_bytes(std::span(chunk.digest.bytes)));
        if (!good) return Malformed("digest", "a digest is 32 bytes");
        break;
      case kOffsetTag:
        good = in.ReadVarint(chunk.offset);
        break;
      case kSessionTag:
        good = in.ReadVarint(chunk.session.value);
        break;
      case kChecksumTag: {
        std::array<std::byte, 8> raw{};
        good = in.Read(raw);
        chunk.checksum = 0;
        for (int i = 0; i < 8; ++i) chunk.checksum |= static_cast<uint64_t>(raw[i]) << (8 * i);
        break;
      }
      case kDataTag:
        if (!in.ReadVarint(n) || n > in.left()) return Malformed("data", "cut off");
        if (n > kChunkBytes)
          return Refuse(v1::Refusal::REASON_TOO_LARGE, "data: a chunk is at most 1 MiB", "data");
        chunk.data.clear();  // as in protobuf, the last value of a field counts
        chunk.size = n;
        while (n > 0) {
          chunk.data.push_back(in.Take(n));
          n -= chunk.data.back().size();
        }
        break;
      default:
        good = SkipField(in, tag);
    }
    if (!good) return Malformed("chunk", absl::StrCat("field ", tag >> 3, " is damaged"));
  }
  return chunk;
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return bytes;
}

grpc::ByteBuffer FromString(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace macaw::wire
