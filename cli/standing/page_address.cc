#include "cli/standing/page_address.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "proto/wire/address.h"

namespace macaw::cli {

absl::StatusOr<PageAddress> ReadPageAddress(const std::string& http, const std::string& token_file,
                                            const std::string& key, const std::string& token_key) {
  const absl::StatusOr<wire::Address> address = wire::ParseAddress(http);
  if (!address.ok()) return Annotate(address.status(), key);
  if (address->is_unix)
    return absl::InvalidArgumentError(absl::StrCat(key, " must be host:port, not a Unix socket"));
  PageAddress page{.host = address->host.empty() ? "127.0.0.1" : address->host,
                   .port = address->port,
                   .token = ""};
  if (!token_file.empty()) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(token_file));
    page.token = std::string(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))));
    if (page.token.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(token_key, ": the first line of ", token_file, " is empty"));
    }
  } else if (!address->IsLoopback()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " = \"", http,
                     "\" is not a loopback address, and every caller there sees the run: name a "
                     "file with a token in ",
                     token_key, ", or use 127.0.0.1"));
  }
  return page;
}

}  // namespace macaw::cli
