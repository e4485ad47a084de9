// Of macaw_test_headers, whose precompiled header the tests use (CMakeLists.txt): a target needs a
// source.
int main() {}
