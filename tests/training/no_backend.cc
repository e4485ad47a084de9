// A shared library that is no back end.
int nothing = 0;
