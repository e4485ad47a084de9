# macaw_text_header(GEN cli/gen/cli/watch/live.h NAMESPACE macaw::cli CONSTANT kLiveScript FILES watch/live.js)
# makes a header below the build folder, with the text of these files, one after the other, for a program that has it
# inside.
function(macaw_text_header)
  cmake_parse_arguments(ARG "" "GEN;NAMESPACE;CONSTANT" "FILES" ${ARGN})
  set(text "")
  foreach(file IN LISTS ARG_FILES)
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${file} part)
    string(APPEND text "${part}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  set(declaration "inline constexpr char ${ARG_CONSTANT}[] = R\"macaw(${text})macaw\";")
  set(includes "")
  macaw_write_text_header()
endfunction()

# macaw_template_header(GEN … NAMESPACE … CONSTANT kPluginTemplate FOLDER sdk/template)
# The files NAME.in of a folder (from the project's root) as a list of TemplateFile{NAME, text}.
function(macaw_template_header)
  cmake_parse_arguments(ARG "" "GEN;NAMESPACE;CONSTANT;FOLDER" "" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/*.in)
  set(entries "")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WLE)  # without .in
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"macaw(${text})macaw\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(declaration "inline constexpr TemplateFile ${ARG_CONSTANT}[] = {\n${entries}};")
  set(includes "#include \"cli/commands/project.h\"\n\n")
  macaw_write_text_header()
endfunction()

# macaw_modules_header(GEN … NAMESPACE … CONSTANT kTrackModules MODULES _track_run track)
# Modules of python/macaw as a list of PythonModule{name, text} (core/python.h), in this order.
function(macaw_modules_header)
  cmake_parse_arguments(ARG "" "GEN;NAMESPACE;CONSTANT" "MODULES" ${ARGN})
  set(entries "")
  foreach(module IN LISTS ARG_MODULES)
    set(file ${PROJECT_SOURCE_DIR}/python/macaw/${module}.py)
    file(READ ${file} text)
    string(APPEND entries "    {\"${module}\", R\"macaw(${text})macaw\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(declaration "inline constexpr PythonModule ${ARG_CONSTANT}[] = {\n${entries}};")
  set(includes "#include \"core/python.h\"\n\n")
  macaw_write_text_header()
endfunction()

# Of those above, whose variables it sees.
macro(macaw_write_text_header)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${ARG_GEN} @ONLY CONTENT [[
#pragma once

@includes@namespace @ARG_NAMESPACE@ {

@declaration@

}  // namespace @ARG_NAMESPACE@
]])
endmacro()
