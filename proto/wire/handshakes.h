#pragma once

#include "proto/wire/gate.h"

namespace macaw::wire {

// Enters the handshakes that fail (garbage, plain text, a version of TLS before 1.3) in the audit
// log of a gate. gRPC tells them to its log alone, without the caller's address. So this takes over
// gRPC's log in this process, for good, unless GRPC_VERBOSITY asks for it. Thread-safe.
class HandshakeAudit {
 public:
  explicit HandshakeAudit(const Gate& gate);  // which must outlive it
  ~HandshakeAudit();
  HandshakeAudit(const HandshakeAudit&) = delete;
  HandshakeAudit& operator=(const HandshakeAudit&) = delete;

 private:
  const Gate& gate_;
};

}  // namespace macaw::wire
