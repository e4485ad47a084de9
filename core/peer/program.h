#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/child.h"
#include "core/peer/peer.h"

namespace macaw::peer {

// Starts a program that answers lines with lines. It finds its end of the channel under the number
// in MACAW_CHANNEL. What it prints goes to spec.output if that is a descriptor, else to the log of
// this process, each line behind `prefix`; its last lines then say why it failed. The program is
// killed when the thread that started it ends. An error says why it cannot be started.
absl::StatusOr<std::unique_ptr<Peer>> Start(ChildSpec spec, Peer::Options options,
                                            std::string prefix = "");

}  // namespace macaw::peer
