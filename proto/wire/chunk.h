#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

// The message macaw.v1.Chunk, written and read by hand so that a blob's bytes go from its memory to
// the socket and from the socket to its memory without a message object between.
namespace macaw::wire {

// The chunk of `blob` at [offset, offset + size). The data is not copied: the buffer keeps `blob`
// alive. `digest` and `session` are written when they are not zero: in an upload's first chunk.
grpc::ByteBuffer EncodeChunk(std::shared_ptr<const AlignedBuffer> blob, uint64_t offset,
                             size_t size, const Digest& digest, SessionId session = {});

// A received chunk. `data` is in pieces, as it came from the network, and lives as long as this
// object.
struct ReceivedChunk {
  Digest digest;      // zero: absent
  SessionId session;  // likewise
  uint64_t offset = 0;
  uint64_t checksum = 0;
  size_t size = 0;
  std::vector<std::span<const std::byte>> data;
  std::vector<grpc::Slice> slices;
};

// Any bytes are accepted or refused (REASON_MALFORMED, REASON_TOO_LARGE past kChunkBytes). The
// checksum is not looked at: the receiver copies first and checks what it has copied.
absl::StatusOr<ReceivedChunk> DecodeChunk(const grpc::ByteBuffer& buffer);

// Ordinary messages in raw buffers.
std::string ToString(const grpc::ByteBuffer& buffer);
grpc::ByteBuffer FromString(const std::string& bytes);

}  // namespace macaw::wire
