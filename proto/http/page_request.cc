#include "proto/http/page_request.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::http {
namespace {

constexpr int kBadRequest = 400, kForbidden = 403, kNotFound = 404;

// %41 → A, + → a space.
std::string Decoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, 2);
    if (text[i] == '%' && digits.size() == 2 && absl::ascii_isxdigit(digits[0]) &&
        absl::ascii_isxdigit(digits[1])) {
      decoded += absl::HexStringToBytes(digits);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

absl::string_view NameOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

}  // namespace

std::string PageRequest::Parameter(absl::string_view name) const {
  const auto it = parameters.find(name);
  return it != parameters.end() ? it->second : "";
}

std::string PageRequest::Header(absl::string_view name) const {
  const auto it = headers.find(name);
  return it != headers.end() ? it->second : "";
}

std::optional<PageRequest> ReadRequest(absl::string_view head, int& status) {
  status = kBadRequest;
  std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return std::nullopt;
  if (words[0] != "GET" && words[0] != "HEAD") {
    status = kNotFound;
    return std::nullopt;
  }
  PageRequest request{.head_only = words[0] == "HEAD"};
  const std::pair<absl::string_view, absl::string_view> target =
      absl::StrSplit(words[1], absl::MaxSplits('?', 1));
  request.path = std::string(target.first);
  for (const absl::string_view part : absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    request.parameters[Decoded(field.first)] = Decoded(field.second);
  }
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == absl::string_view::npos) return std::nullopt;
    request.headers[absl::AsciiStrToLower(lines[i].substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
  }
  return request;
}

// No caches, no scripts and frames of other sites.
std::string BytesOfReply(const PageReply& reply, bool head_only) {
  std::string head = absl::StrCat(
      "HTTP/1.1 ", reply.status, " ", NameOf(reply.status), "\r\nContent-Type: ", reply.type,
      "\r\nContent-Length: ", reply.body.size(),
      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n");
  for (const auto& [name, value] : reply.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  return absl::StrCat(head, "\r\n", head_only ? "" : reply.body);
}

bool NamesLoopback(const PageRequest& request) {
  const std::string header = request.Header("host");
  absl::string_view host = header;
  if (absl::StartsWith(host, "[")) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  const bool number = host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return host == "localhost" || host == "::1" || (number && absl::StartsWith(host, "127."));
}

PageReply RefuseOtherNames() {
  return {.status = kForbidden, .body = "this page is for this machine: open it as localhost\n"};
}

}  // namespace macaw::http
