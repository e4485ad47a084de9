#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "identity/node_files.h"
#include "identity/openssl.h"

namespace macaw::wire {

inline Fd ConnectTo(const std::string& address, const char* from = "127.0.0.1") {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, from, &at.sin_addr);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  return fd;
}

// Whether the other end hangs up within this time. What it sends is thrown away.
inline bool HangsUpWithin(const Fd& fd, int milliseconds) {
  char bytes[4096];
  pollfd waiting{.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (poll(&waiting, 1, milliseconds) > 0) {
    if (recv(fd.get(), bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

// A caller that speaks HTTP/2 over TLS 1.3 by hand, and so may do what no library does. It honours
// flow control, since a server ends a connection that does not. Blocking; one thread.
class RawCaller {
 public:
  // Shows the certificate in `files`, if there is one.
  explicit RawCaller(const std::string& address, const identity::IdentityFiles* files = nullptr,
                     const char* from = "127.0.0.1")
      : fd_(ConnectTo(address, from)), context_(SSL_CTX_new(TLS_client_method())) {
    const unsigned char h2[] = {2, 'h', '2'};
    SSL_CTX_set_alpn_protos(context_.get(), h2, sizeof(h2));
    if (files != nullptr) {
      SSL_CTX_use_certificate_file(context_.get(), files->certificate.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), files->key.c_str(), SSL_FILETYPE_PEM);
    }
    session_.reset(SSL_new(context_.get()));
    SSL_set_fd(session_.get(), fd_.get());
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    open_ = SSL_connect(session_.get()) == 1;
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Frame(kSettings, 0, 0, "");
    // The server's settings and its first window come at once.
    while (open_ && !settings_) ReadFrame();
  }

  bool open() const { return open_; }
  uint64_t sent() const { return sent_; }  // bytes of frames

  // Begins a call on the next stream, whose number it returns.
  uint32_t Begin(const std::string& path) {
    const auto text = [](const std::string& s) {
      return absl::StrCat(std::string(1, static_cast<char>(s.size())), s);
    };
    const auto field = [&](const std::string& name, const std::string& value) {
      return absl::StrCat(std::string(1, '\0'), text(name), text(value));
    };
    while (open_ && Readable()) ReadFrame();
    const uint32_t stream = next_;
    next_ += 2;
    Frame(kHeaders, kEndHeaders, stream,
          absl::StrCat(field(":method", "POST"), field(":scheme", "https"), field(":path", path),
                       field(":authority", "x"), field("content-type", "application/grpc"),
                       field("te", "trailers")));
    return stream;
  }
  void Reset(uint32_t stream) { Frame(kReset, 0, stream, std::string("\0\0\0\x08", 4)); }

  // Makes a whole call with this message, and waits for its answer.
  void Call(const std::string& path, const std::string& message) {
    const uint32_t n = htonl(static_cast<uint32_t>(message.size()));
    std::string bytes(1, '\0');
    bytes.append(reinterpret_cast<const char*>(&n), sizeof(n));
    Frame(kData, kEnd, Begin(path), bytes + message);
    for (ended_ = false; open_ && !ended_;) ReadFrame();
  }

  // Sends `size` bytes of a message that would have `of`, as the windows allow. Stops when the
  // server hangs up.
  void SendPartOfMessage(uint32_t stream, uint32_t size, uint32_t of) {
    const uint32_t n = htonl(of);
    std::string bytes(1, '\0');
    bytes.append(reinterpret_cast<const char*>(&n), sizeof(n));
    int64_t window = stream_window_;
    const std::string filling(16 << 10, 'x');
    for (int64_t left = size; open_ && left > 0;) {
      while (open_ && (window_ <= 0 || Readable())) ReadFrame();
      const int64_t next = std::min({left, window, window_, int64_t{16} << 10});
      if (next <= 0) return;  // what the stream's window bears was sent
      absl::StrAppend(&bytes, filling.substr(0, static_cast<size_t>(next) - bytes.size()));
      Frame(kData, 0, stream, bytes);
      bytes.clear();
      left -= next;
      window -= next;
      window_ -= next;
    }
  }

  // Reads until the server hangs up or sends nothing for long.
  void ReadToTheEnd() {
    while (open_) ReadFrame();
  }

 private:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kWindow = 8 };
  static constexpr uint8_t kEndHeaders = 4, kAck = 1, kEnd = 1;

  void Frame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
    std::string head = {static_cast<char>(payload.size() >> 16),
                        static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size()),
                        static_cast<char>(type), static_cast<char>(flags)};
    const uint32_t n = htonl(stream);
    head.append(reinterpret_cast<const char*>(&n), sizeof(n));
    Send(head + payload);
  }
  void Send(const std::string& bytes) {
    if (!open_) return;
    open_ = SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
    if (open_) sent_ += bytes.size();
  }
  bool Readable() const {
    if (SSL_pending(session_.get()) > 0) return true;
    pollfd waiting{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 0) > 0;
  }
  std::string Read(size_t size) {
    std::string bytes(size, '\0');
    for (size_t done = 0; open_ && done < size;) {
      const int n = SSL_read(session_.get(), bytes.data() + done, static_cast<int>(size - done));
      if (n <= 0) open_ = false;
      done += static_cast<size_t>(std::max(n, 0));
    }
    return bytes;
  }
  void ReadFrame() {
    const std::string head = Read(9);
    if (!open_) return;
    const auto at = [](const std::string& s, size_t i) { return static_cast<uint8_t>(s[i]); };
    const auto word = [&](const std::string& s, size_t i) {
      return uint32_t{at(s, i)} << 24 | uint32_t{at(s, i + 1)} << 16 | uint32_t{at(s, i + 2)} << 8 |
             at(s, i + 3);
    };
    const std::string payload =
        Read(uint32_t{at(head, 0)} << 16 | uint32_t{at(head, 1)} << 8 | at(head, 2));
    if (!open_) return;
    if (at(head, 3) == kWindow && word(head, 5) == 0) window_ += word(payload, 0);
    if (at(head, 3) == kHeaders && (at(head, 4) & kEnd) != 0) ended_ = true;
    if (at(head, 3) == kSettings && (at(head, 4) & kAck) == 0) {
      for (size_t i = 0; i + 6 <= payload.size(); i += 6) {
        if (at(payload, i + 1) == 4) stream_window_ = word(payload, i + 2);
      }
      settings_ = true;
      Frame(kSettings, kAck, 0, "");
    }
  }

  const Fd fd_;
  const std::unique_ptr<SSL_CTX, identity::FreeWith<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, identity::FreeWith<SSL_free>> session_;
  bool open_ = false, settings_ = false, ended_ = false;
  int64_t window_ = 65535, stream_window_ = 65535;
  uint32_t next_ = 1;
  uint64_t sent_ = 0;
};

}  // namespace macaw::wire
