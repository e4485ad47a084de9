#pragma once

#include <httplib.h>

#include "absl/strings/string_view.h"

namespace macaw::http {

// What every server of pages here does: few threads, no caches, no scripts and frames of other
// sites, and a port that it does not share.
void SetUp(httplib::Server& server);

// Whether the request names this machine. A page of another site may ask a browser for anything
// here, under a name of its own that leads to 127.0.0.1.
bool NamesLoopback(const httplib::Request& request);
// Answers 403 with a sentence.
void RefuseOtherNames(httplib::Response& response);

}  // namespace macaw::http
