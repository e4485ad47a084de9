// The source of the target macaw_test_headers, which has the tests' precompiled header.
int main() {}
