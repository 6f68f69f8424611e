/* Object names as paths below a bucket's folder, so that a folder that a user filled by hand is
 * served as it lies there, and no object name can leave the folder or meet another one's file.
 *
 * "/" separates folders. A byte that is not safe is %XX (upper case): control characters, "%", and
 * the first "." of a component that would mean something ("." and "..", the folder of our own, and
 * the rest of a split component). What no escape can look like has a meaning of its own: "%-" is an
 * empty component ("a//b", "a/"); "%_" at the end of a folder says that the component goes on
 * inside (components are split so that no file name exceeds 255 bytes); "%+" at the end of a file
 * says that a folder of the plain name is in its place (objects "a" and "a/b"). */
#ifndef RG_EMULATOR_STORE_DISK_FILE_NAME_H
#define RG_EMULATOR_STORE_DISK_FILE_NAME_H

#include "emulator/store/model/names.h"

/* In the bucket's folder: what we know of the files beside their bytes. */
#define RG_FILE_NAME_PRIVATE ".ringest"
#define RG_FILE_NAME_ASIDE "%+"
/* Room for the path of any valid name, "%+" and a NUL: at most three bytes for each of the name,
 * and "%_/" for each 200 of these. */
#define RG_FILE_PATH_MAX 3200

/* Writes the path and a NUL, and returns its size. The name is valid. */
size_t rg_file_name_encode(struct rg_h1_slice name, char path[RG_FILE_PATH_MAX]);
/* The name of a file that lies at `path`, without "%+". Returns its size; -EINVAL when no object is
 * kept there, because its name is not valid or would be kept elsewhere. */
int rg_file_name_decode(const char *path, char name[RG_STORE_NAME_SIZE_MAX]);

#endif
