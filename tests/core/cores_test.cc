// How many threads a process starts: what its affinity and its control groups allow, and not what
// the machine has.
#include "core/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using testing_support::TemporaryFolder;

class CoresOfCgroupsTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::string root() const { return folder_.path(); }
  const TemporaryFolder folder_;
};

TEST_F(CoresOfCgroupsTest, AreTheQuotaOfItsGroup) {
  Write("system.slice/job/cpu.max", "250000 100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups("0::/system.slice/job\n", root()), 2.5);
  Write("system.slice/job/cpu.max", "max 100000");
  EXPECT_EQ(CoresOfCgroups("0::/system.slice/job\n", root()), 0);
  EXPECT_EQ(CoresOfCgroups("0::/elsewhere\n", root()), 0);
}

TEST_F(CoresOfCgroupsTest, AreTheSmallestQuotaOfTheGroupsAroundIt) {
  Write("pod/cpu.max", "150000 50000");
  Write("pod/container/cpu.max", "800000 100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups("0::/pod/container\n", root()), 3);
  Write("pod/container/cpu.max", "50000 100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups("0::/pod/container\n", root()), 0.5);
}

TEST_F(CoresOfCgroupsTest, AreThoseOfTheRootThatAContainerSees) {
  Write("cpu.max", "400000 100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups("0::/\n", root()), 4);
  EXPECT_DOUBLE_EQ(CoresOfCgroups("0::/../host/path/of/it\n", root()), 4);
}

TEST_F(CoresOfCgroupsTest, KnowVersionOne) {
  const std::string membership = "7:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/docker/1\n";
  Write("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1");
  Write("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CoresOfCgroups(membership, root()), 0);
  Write("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "600000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups(membership, root()), 6);
  // Mounted under the controller's name, as in a container, where its group is the root.
  Write("cpu/cpu.cfs_quota_us", "120000");
  Write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups(membership, root()), 1.2);
  Write("memory/docker/1/cpu.cfs_quota_us", "1000");  // not the processor's
  Write("memory/docker/1/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(CoresOfCgroups(membership, root()), 1.2);
}

TEST_F(CoresOfCgroupsTest, IgnoreWhatTheyDoNotUnderstand) {
  Write("a/cpu.max", "many 100000");
  Write("b/cpu.max", "100000");
  Write("c/cpu.max", "100000 0");
  for (const std::string group : {"a", "b", "c"})
    EXPECT_EQ(CoresOfCgroups("0::/" + group, root()), 0) << group;
  EXPECT_EQ(CoresOfCgroups("nonsense\n:\n\n3:cpu\n", root()), 0);
}

TEST(UsableCores, AreTheFewerOfBoth) {
  EXPECT_EQ(UsableCores(8, 0), 8u);
  EXPECT_EQ(UsableCores(8, 2), 2u);
  EXPECT_EQ(UsableCores(8, 1.5), 2u);
  EXPECT_EQ(UsableCores(8, 0.1), 1u);
  EXPECT_EQ(UsableCores(2, 6), 2u);
  EXPECT_EQ(UsableCores(0, 0), 1u);
}

TEST(UsableCores, AreAtMostTheAllowedOnes) {
  EXPECT_GE(UsableCores(), 1u);
  EXPECT_LE(UsableCores(), AllowedCores());
}

TEST(AllowedCores, FollowTheAffinity) {
  const pid_t child = ::fork();
  if (child == 0) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) ::_exit(2);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &allowed)) CPU_SET(i, &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) ::_exit(2);
    ::_exit(AllowedCores() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace macaw
