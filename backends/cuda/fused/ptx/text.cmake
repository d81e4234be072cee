# Makes a C++ source of the text FROM, which defines kFunctionsText, in the file TO.
file(READ ${FROM} text)
file(WRITE ${TO} "#include \"backends/cuda/fused/functions.h\"\n\nconst char mica::cuda::kFunctionsText[] = R\"ptx(${text})ptx\";\n")
