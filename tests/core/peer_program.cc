// The other end of a channel in peer_test.cc, which depends on nothing of Macaw. It does what its
// argument names, for the first line that it hears:  peer_program WHAT
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int g_channel = -1;
int g_file = -1;  // a descriptor that came with the last line

bool Hear(std::string& line) {
  line.clear();
  char byte = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  while (true) {
    iovec part = {&byte, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(g_channel, &message, 0) != 1) return false;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr)
      std::memcpy(&g_file, CMSG_DATA(header), sizeof(g_file));
    if (byte == '\n') return true;
    line += byte;
  }
}

bool Write(int file, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t more = ::write(file, text.data() + done, text.size() - done);
    if (more < 0) return false;
    done += static_cast<size_t>(more);
  }
  return true;
}
void Say(const std::string& text) { (void)Write(g_channel, text); }
void Print(const std::string& text) { (void)Write(STDERR_FILENO, text); }

int Do(const std::string& what, const std::string& line) {
  if (what == "dies") {
    Print("opening the rows\nthe disk is on fire\n");
    Say("half an ans");
    return 3;
  }
  if (what == "is killed") {
    Say("half an ans");
    ::kill(::getpid(), SIGKILL);
  }
  if (what == "prints Latin-1") {
    Print("caf\xe9 is closed\n");
    return 4;
  }
  if (what == "leaves a child") {  // which keeps the channel open
    if (::fork() == 0) ::pause();
    return 5;
  }
  if (what == "answers without end") {
    while (Write(g_channel, std::string(1 << 16, 'x'))) continue;
    ::pause();
  }
  if (what == "hangs") ::pause();
  if (what == "closes its channel") {
    ::close(g_channel);
    ::pause();
  }
  if (what == "floods") {
    while (true) Print(std::string(80, 'f') + "\n");
  }
  if (what == "floods and answers") {
    for (int i = 0; i < 20'000; ++i) Print(std::string(80, 'f') + "\n");
    Say("done\n");
  }
  if (what == "answers twice") Say("one\ntwo\n");
  if (what == "answers in pieces") {
    Say("first ");
    ::usleep(10'000);
    Say("second\n");
  }
  if (what == "answers much") Say(std::string(900'000, 'y') + "\n");
  if (what == "answers nonsense") Say("\xff\xfe{]\n");
  if (what == "echoes") Say(line + "\n");
  if (what == "writes into the file") {
    void* const data = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, g_file, 0);
    if (data == MAP_FAILED) return 6;
    static_cast<float*>(data)[1] = 2.5F;
    Say("written\n");
  }
  if (what == "resizes the file") {
    const bool shrunk = ::ftruncate(g_file, 1) == 0, grown = ::ftruncate(g_file, 1 << 20) == 0;
    Say(std::string(shrunk ? "shrunk " : "not shrunk ") + (grown ? "grown\n" : "not grown\n"));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_channel = std::atoi(::getenv("MACAW_CHANNEL"));
  const std::string what = argv[1];
  if (what == "does not listen") ::pause();
  if (what == "speaks first") Say("hello\n");
  std::string line;
  while (Hear(line)) {
    if (const int code = Do(what, line); code != 0) return code;
  }
}
