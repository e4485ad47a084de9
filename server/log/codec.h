#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/log/record.h"

namespace macaw::server::log {

// An entry's time and record as bytes: protobuf's wire format by the numbers of fields.h, with
// clients and fences as columns of differences, so that a leased client costs about three bytes. A
// field at its default takes none.
void Encode(const Entry& entry, std::string& out);  // appends; without the sequence number

// A kind that is not known gives Unknown, a field that is not known is passed over. An error says
// that the bytes are no record.
absl::StatusOr<Entry> Decode(absl::string_view bytes, uint64_t sequence);

}  // namespace macaw::server::log
