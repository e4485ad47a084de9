#pragma once

#include <optional>
#include <string>
#include <utility>

#include "proto/http/page_server.h"

namespace macaw::http {

// Who may see a page: those that send the token, or, where none is needed, every caller that names
// this machine.
class PageGate {
 public:
  explicit PageGate(std::string token) : token_(std::move(token)) {}  // "": none is needed

  // What to answer instead of the page, if the caller may not see it.
  std::optional<PageReply> Refusal(const PageRequest& request) const;

 private:
  bool HasToken(const PageRequest& request) const;

  const std::string token_;
};

}  // namespace macaw::http
