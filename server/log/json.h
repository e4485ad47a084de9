#pragma once

#include <string>

#include "server/log/history.h"
#include "server/log/record.h"

namespace macaw::server::log {

// The entry as one JSON object on one line, without the newline: "seq", "t" (seconds), "record"
// (the kind's name), then the fields with their names in fields.h. Digests are hexadecimal, fences
// are "epoch.counter". Fields with default values are written, except digests that are zero. An
// entry that a later session has undone (history.h) has "undone": true.
std::string JsonOf(const Entry& entry, Standing standing = Standing::kCounts);

}  // namespace macaw::server::log
