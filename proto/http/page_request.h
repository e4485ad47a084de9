#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/http/page_server.h"

namespace macaw::http {

// Reads the head of a request, with its empty last line. Absent: it is no GET request of HTTP/1,
// and `status` is what to answer.
std::optional<PageRequest> ReadRequest(absl::string_view head, int& status);

// The bytes of a reply, after which the connection is closed.
std::string BytesOfReply(const PageReply& reply);

}  // namespace macaw::http
