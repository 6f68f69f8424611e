"""Google's own client for Python, google-cloud-storage.

What it cannot do here: single entries of ACLs, IAM policies, notifications, HMAC keys, signed URLs and retention of
single objects, which the emulator does not have. Folders of hierarchical buckets it leaves to
another client, which speaks gRPC only; what is asked of them here goes through its connection."""

import io
import os
import tempfile

from peer import LARGE, SMALL, Peer


class GoogleCloudStorage(Peer):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Imported here, because they read the environment when they are.
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        cls.client = storage.Client(
            project="project",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": cls.endpoint},
        )

    def setUp(self):
        super().setUp()
        self.bucket = self.client.create_bucket(self.bucket_name)

    def put(self, name, data=SMALL, **options):
        blob = self.bucket.blob(name)
        blob.upload_from_string(data, **options)
        return blob

    def names(self, **options):
        return [blob.name for blob in self.client.list_blobs(self.bucket_name, **options)]

    def test_upload_in_one_request(self):
        blob = self.put("a/b c#d?e%2F", content_type="text/plain", checksum="crc32c")
        self.assertEqual((blob.size, blob.content_type), (len(SMALL), "text/plain"))
        self.assertEqual(blob.download_as_bytes(), SMALL)
        self.assertEqual(self.bucket.get_blob("a/b c#d?e%2F").generation, blob.generation)
        self.put("md5", checksum="md5")
        self.assertEqual(self.put("empty", b"").download_as_bytes(), b"")

    def test_resumable_upload_of_known_size(self):
        blob = self.bucket.blob("large", chunk_size=1024 * 1024)
        blob.metadata = {"key": "välue"}
        blob.upload_from_file(io.BytesIO(LARGE), size=len(LARGE), checksum="crc32c")
        self.assertEqual(blob.size, len(LARGE))
        self.assertEqual(self.bucket.get_blob("large").metadata, {"key": "välue"})
        self.assertEqual(blob.download_as_bytes(), LARGE)

    def test_resumable_upload_of_unknown_size(self):
        blob = self.bucket.blob("large", chunk_size=256 * 1024)
        data = LARGE[: 3 * 1024 * 1024 + 1]
        blob.upload_from_file(io.BytesIO(data))
        self.assertEqual(blob.download_as_bytes(), data)
        with self.bucket.blob("stream").open("wb", chunk_size=256 * 1024) as stream:
            for at in range(0, len(data), 100_000):
                stream.write(data[at : at + 100_000])
        with self.bucket.blob("stream").open("rb") as stream:
            self.assertEqual(stream.read(), data)

    def test_resumable_upload_in_one_chunk(self):
        blob = self.bucket.blob("large")
        blob.upload_from_file(io.BytesIO(LARGE), size=len(LARGE))
        self.assertEqual(self.bucket.get_blob("large").size, len(LARGE))

    def test_multipart_upload_of_the_transfer_manager(self):
        from google.cloud.storage import transfer_manager

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as file:
                file.write(LARGE)
            blob = self.bucket.blob("large")
            blob.content_type = "text/x"
            blob.metadata = {"key": "value"}
            transfer_manager.upload_chunks_concurrently(
                path, blob, chunk_size=6 * 1024 * 1024, worker_type=transfer_manager.THREAD, checksum="crc32c"
            )
            blob.reload()
            self.assertEqual((blob.size, blob.content_type, blob.metadata), (len(LARGE), "text/x", {"key": "value"}))
            copy = os.path.join(folder, "copy")
            transfer_manager.download_chunks_concurrently(
                blob, copy, chunk_size=5_000_000, worker_type=transfer_manager.THREAD
            )
            with open(copy, "rb") as file:
                self.assertEqual(file.read(), LARGE)

    def test_many_at_once(self):
        from google.cloud.storage import transfer_manager

        pairs = [(io.BytesIO(b"%d" % i), self.bucket.blob(f"many/{i}")) for i in range(50)]
        results = transfer_manager.upload_many(pairs, worker_type=transfer_manager.THREAD)
        self.assertEqual([result for result in results if result is not None], [])
        self.assertEqual(len(self.names(prefix="many/")), 50)

    def test_download_of_ranges(self):
        blob = self.put("name", LARGE)
        self.assertEqual(blob.download_as_bytes(start=5, end=99), LARGE[5:100])
        self.assertEqual(blob.download_as_bytes(start=len(LARGE) - 7), LARGE[-7:])
        blob.chunk_size = 5 * 256 * 1024
        self.assertEqual(blob.download_as_bytes(), LARGE)

    def test_download_that_is_unpacked(self):
        import gzip

        blob = self.bucket.blob("packed")
        blob.content_encoding = "gzip"
        blob.upload_from_string(gzip.compress(SMALL))
        self.assertEqual(blob.download_as_bytes(), SMALL)
        self.assertEqual(gzip.decompress(blob.download_as_bytes(raw_download=True)), SMALL)

    def test_listing(self):
        for name in ("a/1", "a/2", "a/b/3", "c", "d/"):
            self.put(name, b"x")
        self.assertEqual(self.names(), ["a/1", "a/2", "a/b/3", "c", "d/"])
        self.assertEqual(self.names(page_size=2), ["a/1", "a/2", "a/b/3", "c", "d/"])
        self.assertEqual(self.names(prefix="a/", start_offset="a/2", end_offset="a/b/4"), ["a/2", "a/b/3"])
        self.assertEqual(self.names(match_glob="a/**"), ["a/1", "a/2", "a/b/3"])
        pages = self.client.list_blobs(self.bucket_name, delimiter="/", include_trailing_delimiter=True)
        self.assertEqual([blob.name for blob in pages], ["c", "d/"])
        self.assertEqual(pages.prefixes, {"a/", "d/"})

    def test_compose(self):
        parts = [self.put(f"part-{i}", LARGE[i * 1000 : (i + 1) * 1000]) for i in range(32)]
        whole = self.bucket.blob("whole")
        whole.content_type = "text/x"
        whole.compose(parts, if_generation_match=0)
        self.assertEqual(whole.download_as_bytes(), LARGE[:32000])
        whole.reload()
        self.assertEqual((whole.component_count, whole.content_type), (32, "text/x"))

    def test_rewrite_and_copies(self):
        source = self.put("source", LARGE[: 3 * 1024 * 1024])
        other = self.client.create_bucket(self.bucket_name + "-2")
        target = other.blob("target")
        token, rewritten, total = target.rewrite(source, if_source_generation_match=source.generation)
        self.assertEqual((token, rewritten, total), (None, source.size, source.size))
        self.assertEqual(target.download_as_bytes(), LARGE[: 3 * 1024 * 1024])
        copy = self.bucket.copy_blob(source, other, "copy", if_generation_match=0)
        self.assertEqual(copy.crc32c, source.crc32c)
        source.update_storage_class("NEARLINE")
        self.assertEqual(self.bucket.get_blob("source").storage_class, "NEARLINE")
        renamed = self.bucket.rename_blob(source, "renamed")
        self.assertEqual(self.names(), ["renamed"])
        self.bucket.move_blob(renamed, "moved")
        self.assertEqual(self.names(), ["moved"])

    def test_delete(self):
        from google.api_core.exceptions import NotFound

        self.put("name").delete()
        self.assertFalse(self.bucket.blob("name").exists())
        with self.assertRaises(NotFound):
            self.bucket.delete_blob("name")
        self.put("other")
        self.bucket.delete(force=True)
        self.assertIsNone(self.client.lookup_bucket(self.bucket_name))

    def test_batch(self):
        for i in range(60):
            self.put(f"name-{i}", b"x")
        with self.client.batch():
            for i in range(50):
                self.bucket.delete_blob(f"name-{i}")
        self.assertEqual(len(self.names()), 10)
        with self.client.batch(raise_exception=False) as batch:
            self.bucket.delete_blob("name-50")
            self.bucket.delete_blob("name-0")
            blob = self.bucket.blob("name-51")
            blob.metadata = {"key": "value"}
            blob.patch()
        self.assertEqual([answer.status_code for answer in batch._responses], [204, 404, 200])
        self.assertEqual(self.bucket.get_blob("name-51").metadata, {"key": "value"})

    def test_metadata(self):
        blob = self.put("name")
        blob.metadata = {"one": "1", "two": "zwei ä"}
        blob.cache_control = "no-store"
        blob.content_language = "de"
        blob.patch()
        self.assertEqual(blob.metageneration, 2)
        again = self.bucket.get_blob("name")
        self.assertEqual(again.metadata, {"one": "1", "two": "zwei ä"})
        self.assertEqual((again.cache_control, again.content_language), ("no-store", "de"))
        again.metadata = {"one": None}
        again.patch()
        self.assertEqual(self.bucket.get_blob("name").metadata, {"two": "zwei ä"})
        again.metadata = None
        again.update()
        self.assertIsNone(self.bucket.get_blob("name").metadata)

    def test_preconditions(self):
        from google.api_core.exceptions import NotModified, PreconditionFailed

        blob = self.put("name", if_generation_match=0)
        with self.assertRaises(PreconditionFailed):
            self.put("name", if_generation_match=0)
        with self.assertRaises(PreconditionFailed):
            self.bucket.blob("name").upload_from_file(io.BytesIO(LARGE), if_generation_match=1)
        with self.assertRaises(PreconditionFailed):
            blob.download_as_bytes(if_generation_match=1)
        with self.assertRaises(NotModified):
            blob.reload(if_metageneration_not_match=1)
        with self.assertRaises(PreconditionFailed):
            blob.delete(if_metageneration_match=7)
        blob.delete(if_generation_match=blob.generation)

    def test_versions(self):
        self.bucket.versioning_enabled = True
        self.bucket.patch()
        self.assertTrue(self.client.get_bucket(self.bucket_name).versioning_enabled)
        old = self.put("name", b"old").generation
        self.put("name", b"new")
        # A blob that knows its generation would delete that for good.
        self.bucket.delete_blob("name")
        self.assertEqual(self.names(), [])
        self.assertEqual(self.names(versions=True), ["name", "name"])
        self.assertEqual(self.bucket.blob("name", generation=old).download_as_bytes(), b"old")
        self.bucket.delete_blob("name", generation=old)
        self.assertEqual(self.names(versions=True), ["name"])

    def test_md5(self):
        import base64
        import hashlib

        def md5(data):
            return base64.b64encode(hashlib.md5(data).digest()).decode()

        blob = self.put("small", checksum="md5")
        self.assertEqual(blob.md5_hash, md5(SMALL))
        self.assertEqual(blob.download_as_bytes(checksum="md5"), SMALL)
        large = self.bucket.blob("large", chunk_size=1024 * 1024)
        large.upload_from_file(io.BytesIO(LARGE), size=len(LARGE), checksum="md5")
        self.assertEqual(self.bucket.get_blob("large").md5_hash, md5(LARGE))
        self.assertEqual(self.bucket.copy_blob(large, self.bucket, "copy").md5_hash, md5(LARGE))
        whole = self.bucket.blob("whole")
        whole.compose([blob])
        whole.reload()
        self.assertIsNone(whole.md5_hash)

    def test_hierarchical_namespace(self):
        from google.api_core.exceptions import BadRequest, Conflict

        bucket = self.client.bucket(self.bucket_name + "-tree")
        bucket.hierarchical_namespace_enabled = True
        with self.assertRaises(BadRequest):
            bucket.create()
        bucket.iam_configuration.uniform_bucket_level_access_enabled = True
        bucket.create()
        self.assertTrue(self.client.get_bucket(bucket.name).hierarchical_namespace_enabled)

        def folders(method, path="", **options):
            return self.client._connection.api_request(method, f"/b/{bucket.name}/folders{path}", **options)

        folders("POST", query_params={"recursive": True}, data={"name": "empty/inner/"})
        with self.assertRaises(Conflict):
            folders("POST", data={"name": "empty/"})
        bucket.blob("full/sub/name").upload_from_string(SMALL)
        for wanted, options in ({"full/"}, {}), ({"empty/", "full/"}, {"include_folders_as_prefixes": True}):
            pages = self.client.list_blobs(bucket.name, delimiter="/", **options)
            self.assertEqual(list(pages), [])
            self.assertEqual(pages.prefixes, wanted)
        names = [folder["name"] for folder in folders("GET")["items"]]
        self.assertEqual(names, ["empty/", "empty/inner/", "full/", "full/sub/"])
        operation = folders("POST", "/full%2F/renameTo/folders/empty%2Fnew%2F")
        self.assertTrue(operation["done"])
        self.assertEqual(operation["response"]["name"], "empty/new/")
        blob = bucket.move_blob(bucket.get_blob("empty/new/sub/name"), "other/name")
        self.assertEqual(blob.download_as_bytes(), SMALL)
        with self.assertRaises(Conflict):
            folders("DELETE", "/empty%2F")
        for name in ("empty%2Fnew%2Fsub%2F", "empty%2Fnew%2F", "empty%2Finner%2F", "empty%2F"):
            folders("DELETE", f"/{name}")
        self.assertEqual([folder["name"] for folder in folders("GET")["items"]], ["other/"])

    def test_access_control_is_told(self):
        blob = self.put("name", predefined_acl="publicRead")
        again = self.bucket.blob("name")
        again.reload(projection="full")
        self.assertIn({"entity": "allUsers", "role": "READER"}, again._properties["acl"])
        blob.acl.loaded = True  # It would ask for the entries alone, which is not served.
        blob.acl.save_predefined("private")
        self.assertEqual([entry["role"] for entry in blob.acl], ["OWNER"])

    def test_soft_delete(self):
        from google.api_core.exceptions import NotFound

        self.bucket.soft_delete_policy.retention_duration_seconds = 7 * 86400
        self.bucket.patch()
        policy = self.client.get_bucket(self.bucket_name).soft_delete_policy
        self.assertEqual(policy.retention_duration_seconds, 7 * 86400)
        self.assertIsNotNone(policy.effective_time)
        blob = self.put("name", content_type="text/x")
        blob.delete()
        self.assertEqual(self.names(versions=True), [])
        (deleted,) = self.client.list_blobs(self.bucket_name, soft_deleted=True)
        self.assertEqual((deleted.name, deleted.generation), ("name", blob.generation))
        self.assertEqual((deleted.hard_delete_time - deleted.soft_delete_time).days, 7)
        again = self.bucket.get_blob("name", generation=blob.generation, soft_deleted=True)
        self.assertEqual(again.content_type, "text/x")
        restored = self.bucket.restore_blob("name", generation=blob.generation)
        self.assertNotEqual(restored.generation, blob.generation)
        self.assertEqual(restored.download_as_bytes(), SMALL)
        with self.assertRaises(NotFound):
            self.bucket.restore_blob("name", generation=1)

    def test_buckets(self):
        self.assertIn(self.bucket_name, [bucket.name for bucket in self.client.list_buckets()])
        granted = self.bucket.test_iam_permissions(["storage.objects.get", "storage.objects.create"])
        self.assertEqual(granted, ["storage.objects.get", "storage.objects.create"])
