#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

// The message macaw.v1.Chunk, encoded and decoded by hand: a blob's bytes go directly from its
// memory to the socket and back, without a message object.
namespace macaw::wire {

// The chunk of `blob` at [offset, offset + size). The data is not copied: the buffer keeps `blob`
// alive. `digest` and `session` are written when they are not zero: in an upload's first chunk.
grpc::ByteBuffer EncodeChunk(std::shared_ptr<const AlignedBuffer> blob, uint64_t offset,
                             size_t size, const Digest& digest, SessionId session = {});

// A received chunk. `data` is in pieces, as it came from the network, and lives as long as this
// object.
struct ReceivedChunk {
  Digest digest;      // zero: absent
  SessionId session;  // zero: absent
  uint64_t offset = 0;
  uint64_t checksum = 0;
  size_t size = 0;
  std::vector<std::span<const std::byte>> data;
  std::vector<grpc::Slice> slices;
};

// Safe for any bytes. Refuses with REASON_MALFORMED, or with REASON_TOO_LARGE past kChunkBytes.
// Does not check the checksum, which is the receiver's task (core/checksum.h).
absl::StatusOr<ReceivedChunk> DecodeChunk(const grpc::ByteBuffer& buffer);

// Conversion between raw buffers and the bytes of ordinary messages.
std::string ToString(const grpc::ByteBuffer& buffer);
grpc::ByteBuffer FromString(const std::string& bytes);

}  // namespace macaw::wire
