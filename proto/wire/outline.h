#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace google::protobuf {
class Descriptor;
}

// A message's bytes, read without making objects of them: who is calling, and what parsing would
// cost. Two bytes on the wire can be a hundred in memory.
namespace macaw::wire {

struct Outline {
  SessionId session;     // field 1 of a call in a session; 0: absent
  uint64_t objects = 0;  // messages and strings inside, at any depth
};

// REASON_MALFORMED where the bytes are not a message of this type (a string that is not UTF-8 is
// not looked for), REASON_TOO_LARGE where it holds more than `most_objects`.
absl::StatusOr<Outline> ReadOutline(const google::protobuf::Descriptor& type,
                                    const grpc::ByteBuffer& bytes, uint64_t most_objects);

}  // namespace macaw::wire
