#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace google::protobuf {
class Descriptor;
}

// What the bytes of a message tell before it is parsed: the session, and how many objects parsing
// would make. Two bytes on the wire can become a hundred in memory.
namespace macaw::wire {

struct Outline {
  SessionId session;     // field 1 of a call in a session; 0: absent
  uint64_t objects = 0;  // messages and strings inside, at any depth
};

// REASON_MALFORMED when the bytes are not a message of this type (invalid UTF-8 is not detected).
// REASON_TOO_LARGE when the message holds more than `most_objects` objects.
absl::StatusOr<Outline> ReadOutline(const google::protobuf::Descriptor& type,
                                    const grpc::ByteBuffer& bytes, uint64_t most_objects);

}  // namespace macaw::wire
