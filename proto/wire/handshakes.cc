#include "proto/wire/handshakes.h"

#include <grpc/support/log.h>
#include <stdlib.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace macaw::wire {
namespace {

struct Gates {
  absl::Mutex mutex;
  std::vector<const Gate*> live ABSL_GUARDED_BY(mutex);
};

// Never destroyed: gRPC's threads may outlive it.
Gates& AllGates() {
  static auto* const gates = new Gates;
  return *gates;
}

void OnLog(gpr_log_func_args* line) {
  const absl::string_view text = line->message;
  if (!absl::StrContains(text, "Handshake failed")) return;
  Gates& gates = AllGates();
  absl::MutexLock lock(&gates.mutex);
  for (const Gate* const gate : gates.live) gate->Refused({.why = std::string(text)});
}

bool IsLogAskedFor() {
  const char* const asked = ::getenv("GRPC_VERBOSITY");
  return asked != nullptr && absl::string_view(asked) != "NONE";
}

}  // namespace

HandshakeAudit::HandshakeAudit(const Gate& gate) : gate_(gate) {
  if (IsLogAskedFor()) return;
  Gates& gates = AllGates();
  absl::MutexLock lock(&gates.mutex);
  gates.live.push_back(&gate_);
  gpr_set_log_function(OnLog);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

HandshakeAudit::~HandshakeAudit() {
  Gates& gates = AllGates();
  absl::MutexLock lock(&gates.mutex);
  std::erase(gates.live, &gate_);
}

}  // namespace macaw::wire
