#include "proto/http/loopback.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/match.h"

namespace macaw::http {
namespace {

constexpr int kForbidden = 403;
constexpr size_t kThreads = 2;

}  // namespace

void SetUp(httplib::Server& server) {
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_keep_alive_timeout(2);
  // The library's default lets two servers share a port.
  server.set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    // "::" is every address of the machine, whatever the system's default is. A socket of IPv4
    // does not know the option.
    const int no = 0;
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  });
  server.set_payload_max_length(1024);
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Content-Security-Policy",
                               "default-src 'none'; script-src 'unsafe-inline'; style-src "
                               "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"}});
}

bool NamesLoopback(const httplib::Request& request) {
  const std::string header = request.get_header_value("Host");
  absl::string_view host = header;
  if (absl::StartsWith(host, "[")) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  const bool number = host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return host == "localhost" || host == "::1" || (number && absl::StartsWith(host, "127."));
}

void RefuseOtherNames(httplib::Response& response) {
  response.status = kForbidden;
  response.set_content("this page is for this machine: open it as localhost\n", "text/plain");
}

}  // namespace macaw::http
