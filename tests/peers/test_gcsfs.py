"""gcsfs, the file system of fsspec, which frames multipart bodies with bare LF.

What it cannot do here: folders that exist by themselves and zonal buckets, for which it speaks gRPC only."""

import os

from peer import LARGE, SMALL, Peer


class Gcsfs(Peer):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Otherwise it asks for the kind of each bucket over gRPC, for a minute.
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
        import gcsfs

        cls.fs = gcsfs.GCSFileSystem(
            project="project", token="anon", endpoint_url=cls.endpoint, use_listings_cache=False
        )

    def setUp(self):
        super().setUp()
        self.fs.mkdir(self.bucket_name)

    def path(self, name):
        return f"{self.bucket_name}/{name}"

    def test_pipe_and_cat(self):
        self.fs.pipe_file(self.path("a/b c#d%2F"), SMALL)
        self.assertEqual(self.fs.cat_file(self.path("a/b c#d%2F")), SMALL)
        self.assertEqual(self.fs.cat_file(self.path("a/b c#d%2F"), start=3, end=10), SMALL[3:10])
        # Lines of the data that look like those of the framing, which always has the boundary ==0==.
        data = b"\r\n--x\n\n\r\n--==1==\r\n" + SMALL
        self.fs.pipe_file(self.path("lines"), data)
        self.assertEqual(self.fs.cat_file(self.path("lines")), data)

    def test_consistency_by_md5(self):
        import gcsfs

        fs = gcsfs.GCSFileSystem(project="project", token="anon", endpoint_url=self.endpoint, consistency="md5")
        fs.pipe_file(self.path("small"), SMALL)
        with fs.open(self.path("large"), "wb", block_size=5 * 2**20) as file:
            file.write(LARGE)
        self.assertEqual(fs.cat_file(self.path("large")), LARGE)
        self.assertRegex(fs.info(self.path("large"))["md5Hash"], r"^[0-9A-Za-z+/]{22}==$")

    def test_a_hierarchical_bucket(self):
        bucket = self.bucket_name + "-tree"
        self.fs.mkdir(
            bucket,
            hierarchicalNamespace={"enabled": True},
            acl=None,
            default_acl=None,
            iamConfiguration={"uniformBucketLevelAccess": {"enabled": True}},
        )
        self.emulator.create_folder(bucket, "empty/")
        self.fs.pipe_file(f"{bucket}/full/name", SMALL)
        self.assertEqual(self.fs.ls(bucket, detail=False), [f"{bucket}/full"])
        self.emulator.rename_folder(bucket, "full/", "empty/new/")
        self.assertEqual(self.fs.find(bucket), [f"{bucket}/empty/new/name"])
        self.assertEqual(self.fs.cat_file(f"{bucket}/empty/new/name"), SMALL)

    def test_large_files(self):
        with self.fs.open(self.path("large"), "wb", block_size=5 * 2**20) as file:
            for at in range(0, len(LARGE), 1_000_000):
                file.write(LARGE[at : at + 1_000_000])
        self.assertEqual(self.fs.info(self.path("large"))["size"], len(LARGE))
        with self.fs.open(self.path("large"), "rb", block_size=2**20) as file:
            file.seek(12_345_678)
            self.assertEqual(file.read(1000), LARGE[12_345_678:12_346_678])
        self.fs.pipe_file(self.path("large-2"), LARGE)
        self.assertEqual(self.fs.cat_file(self.path("large-2")), LARGE)

    def test_small_files(self):
        with self.fs.open(self.path("small"), "wb") as file:
            file.write(SMALL)
        with self.fs.open(self.path("small"), "rb") as file:
            self.assertEqual(file.read(), SMALL)
        self.fs.touch(self.path("empty"))
        self.assertEqual(self.fs.cat_file(self.path("empty")), b"")

    def test_listing(self):
        for name in ("a/1", "a/b/2", "c"):
            self.fs.pipe_file(self.path(name), b"x")
        self.assertEqual(self.fs.ls(self.bucket_name, detail=False), [self.path("a"), self.path("c")])
        self.assertEqual(self.fs.find(self.bucket_name), [self.path(name) for name in ("a/1", "a/b/2", "c")])
        self.assertEqual(self.fs.glob(self.path("a/*")), [self.path(name) for name in ("a/1", "a/b")])
        self.assertTrue(self.fs.isdir(self.path("a/b")))
        self.assertFalse(self.fs.exists(self.path("none")))

    def test_copy_move_and_delete(self):
        self.fs.pipe_file(self.path("a"), SMALL)
        self.fs.copy(self.path("a"), self.path("b"))
        self.fs.mv(self.path("b"), self.path("c"))
        self.assertEqual(self.fs.cat_file(self.path("c")), SMALL)
        self.assertEqual(self.fs.find(self.bucket_name), [self.path("a"), self.path("c")])
        # In batches.
        for i in range(30):
            self.fs.pipe_file(self.path(f"d/{i}"), b"x")
        self.fs.rm(self.path("d"), recursive=True)
        self.fs.rm([self.path("a"), self.path("c")])
        self.assertEqual(self.fs.find(self.bucket_name), [])
        self.fs.rmdir(self.bucket_name)
        self.assertFalse(self.fs.exists(self.bucket_name))

    def test_merge(self):
        for i in range(3):
            self.fs.pipe_file(self.path(f"part-{i}"), b"%d" % i)
        self.fs.merge(self.path("whole"), [self.path(f"part-{i}") for i in range(3)])
        self.assertEqual(self.fs.cat_file(self.path("whole")), b"012")

    def test_metadata(self):
        self.fs.pipe_file(self.path("a"), SMALL, metadata={"one": "1"}, content_type="text/x")
        self.assertEqual(self.fs.getxattr(self.path("a"), "one"), "1")
        self.assertEqual(self.fs.info(self.path("a"))["contentType"], "text/x")
        self.fs.setxattrs(self.path("a"), two="2")
        self.assertEqual(self.fs.getxattr(self.path("a"), "two"), "2")

    def test_create_only(self):
        self.fs.pipe_file(self.path("a"), SMALL, mode="create")
        with self.assertRaises(FileExistsError):
            self.fs.pipe_file(self.path("a"), SMALL, mode="create")
