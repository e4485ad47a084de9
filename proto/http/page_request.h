#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/http/page_server.h"

namespace macaw::http {

// Reads the head of a request, with its empty last line. Absent: it is no GET or HEAD request of
// HTTP/1, and `status` is what to answer.
std::optional<PageRequest> ReadRequest(absl::string_view head, int& status);

// The bytes of a reply, after which the connection is closed. Of a reply to HEAD the head alone.
std::string BytesOfReply(const PageReply& reply, bool head_only = false);

}  // namespace macaw::http
