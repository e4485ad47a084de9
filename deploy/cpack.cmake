# Read by CPack for each kind of package. A tarball has a folder at its top and holds what several .debs hold: programs with
# their SDK, or the LibTorch back end with its headers.
if(CPACK_GENERATOR STREQUAL "TXZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  foreach(component SERVER WORKER SDK)
    set(CPACK_COMPONENT_${component}_GROUP macaw)
  endforeach()
  set(CPACK_COMPONENT_LIBTORCH_DEV_GROUP macaw-backend-torch)
endif()
