#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/log/record.h"

namespace macaw::server::log {

// Encodes an entry's time and record in protobuf's wire format, with the field numbers of fields.h.
// Clients and fences are columns of differences, so that a leased client costs about three bytes. A
// field with its default value takes no bytes.
void Encode(const Entry& entry, std::string& out);  // appends to `out`; omits the sequence number

// Decodes such bytes. An unknown kind gives Unknown; an unknown field is skipped. Returns an error
// if the bytes are not a record.
absl::StatusOr<Entry> Decode(absl::string_view bytes, uint64_t sequence);

}  // namespace macaw::server::log
