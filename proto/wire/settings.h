#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace macaw::wire {

// What a message says that is not at its default, by field: "local.clip", "transform.client_noise".
// Sent along with a run, so that a worker of another release can tell which of its settings it does
// not know: what is at its default does not travel, and asks nothing of it.
std::vector<std::string> SettingsIn(const google::protobuf::Message& message);

// An error names those that messages of this type cannot have here.
absl::Status CheckKnown(const std::vector<std::string>& settings,
                        const google::protobuf::Descriptor& type);

// Whether the message came with fields that are not known here, at any depth.
bool HasUnknownFields(const google::protobuf::Message& message);

}  // namespace macaw::wire
